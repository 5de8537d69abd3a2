"""The look of the page around the player: one accent, system fonts, light and dark; nothing is fetched."""

from __future__ import annotations

from viz.quick_gradio import gr

SANS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif"]
MONO = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"]

#: One accent (accepted tokens, the primary button, focus); the rest is neutral.
ACCENT = gr.themes.Color(
    c50="#ecf8f2",
    c100="#d3efe0",
    c200="#a9dfc4",
    c300="#75c9a1",
    c400="#3fae7c",
    c500="#17915f",
    c600="#0b7a4d",
    c700="#0a6240",
    c800="#0b4e35",
    c900="#0a402c",
    c950="#052419",
)


def theme() -> gr.themes.Base:
    """Gradio's variables, set so that its own parts look like ours."""
    base = gr.themes.Base(
        primary_hue=ACCENT,
        secondary_hue=gr.themes.colors.gray,
        neutral_hue=gr.themes.colors.gray,
        spacing_size=gr.themes.sizes.spacing_sm,
        radius_size=gr.themes.sizes.radius_sm,
        text_size=gr.themes.sizes.text_md,
        font=SANS,
        font_mono=MONO,
    )
    return base.set(
        body_background_fill="#ffffff",
        body_background_fill_dark="#121416",
        body_text_color="#1b1f23",
        body_text_color_dark="#e8eaed",
        body_text_color_subdued="#5b6470",
        body_text_color_subdued_dark="#a2abb6",
        background_fill_primary="#ffffff",
        background_fill_primary_dark="#181b1e",
        background_fill_secondary="#f6f7f8",
        background_fill_secondary_dark="#1d2124",
        border_color_primary="#d9dde2",
        border_color_primary_dark="#33393f",
        block_background_fill="transparent",
        block_background_fill_dark="transparent",
        block_border_width="0px",
        block_border_width_dark="0px",
        block_shadow="none",
        block_shadow_dark="none",
        block_padding="0px",
        block_label_background_fill="transparent",
        block_label_background_fill_dark="transparent",
        block_title_text_size="12px",
        block_title_text_weight="500",
        block_title_text_color="*body_text_color_subdued",
        block_title_text_color_dark="*body_text_color_subdued",
        form_gap_width="0px",
        input_background_fill="#ffffff",
        input_background_fill_dark="#1d2124",
        input_border_color="#c6ccd3",
        input_border_color_dark="#444c54",
        input_border_color_focus="*primary_600",
        input_border_color_focus_dark="*primary_400",
        input_border_width="1px",
        input_border_width_dark="1px",
        input_shadow="none",
        input_shadow_dark="none",
        input_shadow_focus="0 0 0 1px *primary_600",
        input_shadow_focus_dark="0 0 0 1px *primary_400",
        input_padding="7px 10px",
        input_text_size="14px",
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_dark="*primary_600",
        button_primary_background_fill_hover="*primary_700",
        button_primary_background_fill_hover_dark="*primary_500",
        button_primary_text_color="#ffffff",
        button_primary_text_color_dark="#ffffff",
        button_secondary_background_fill="#ffffff",
        button_secondary_background_fill_dark="#1d2124",
        button_secondary_background_fill_hover="#f1f3f5",
        button_secondary_background_fill_hover_dark="#2a2f34",
        button_secondary_border_color="#c6ccd3",
        button_secondary_border_color_dark="#444c54",
        button_border_width="1px",
        button_border_width_dark="1px",
        button_medium_padding="7px 14px",
        button_medium_text_size="14px",
        button_medium_text_weight="500",
        button_small_padding="4px 9px",
        button_small_text_size="13px",
        button_small_text_weight="400",
        button_transition="background-color 0.12s",
    )
