"""The look of the page around the player: one accent, system fonts, light and dark; nothing is fetched."""

from __future__ import annotations

from viz.quick_gradio import gr

SANS = ["-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "Noto Sans", "sans-serif"]
MONO = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"]

#: One accent, the player's (accepted tokens, the primary button, focus); the rest is neutral.
ACCENT = gr.themes.Color(
    c50="#f0f5fd",
    c100="#e6eefb",
    c200="#c4d8f7",
    c300="#a3c6ff",
    c400="#82b1ff",
    c500="#3f7fe4",
    c600="#1b5fd0",
    c700="#164fae",
    c800="#143f88",
    c900="#17263f",
    c950="#0c1524",
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
        body_background_fill_dark="#0e1116",
        body_text_color="#15181e",
        body_text_color_dark="#eceff4",
        body_text_color_subdued="#4f5866",
        body_text_color_subdued_dark="#b3bbc8",
        background_fill_primary="#ffffff",
        background_fill_primary_dark="#141920",
        background_fill_secondary="#f3f5f8",
        background_fill_secondary_dark="#1a2029",
        border_color_primary="#e4e7ec",
        border_color_primary_dark="#252b34",
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
        input_background_fill_dark="#141920",
        input_border_color="#c9d0da",
        input_border_color_dark="#3a4351",
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
        button_primary_background_fill_dark="*primary_400",
        button_primary_background_fill_hover="*primary_700",
        button_primary_background_fill_hover_dark="*primary_300",
        button_primary_text_color="#ffffff",
        button_primary_text_color_dark="#08111f",
        button_secondary_background_fill="#ffffff",
        button_secondary_background_fill_dark="#141920",
        button_secondary_background_fill_hover="#f3f5f8",
        button_secondary_background_fill_hover_dark="#1a2029",
        button_secondary_border_color="#c9d0da",
        button_secondary_border_color_dark="#3a4351",
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
