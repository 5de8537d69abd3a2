// Runs one kernel: makes the fibers of a grid and lets them take turns until all are done. x86-64 only.
#pragma once

extern "C" void switch_stacks(void** save, void* load);
asm(R"(
.globl switch_stacks
switch_stacks:
    pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
    movq %rsp, (%rdi); movq %rsi, %rsp
    popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
    ret
)");

static std::vector<Fiber> fibers;
static void* main_stack;
static void (*entry)(void**);
static void** entry_arguments;

static Fiber* next_fiber() {
    size_t at = running - fibers.data();
    for (size_t i = 0; i < fibers.size(); i++) {
        at = at + 1 == fibers.size() ? 0 : at + 1;
        if (!fibers[at].done) return &fibers[at];
    }
    return nullptr;
}

void hand_on() {
    Fiber *from = running, *to = next_fiber();
    if (to == from) return;
    running = to;
    switch_stacks(&from->stack, to->stack);
}

static void fiber_body() {
    entry(entry_arguments);
    Fiber *from = running, *to;
    from->done = true;
    to = next_fiber();
    if (to) running = to;
    switch_stacks(&from->stack, to ? to->stack : main_stack);
}

template <class... A, size_t... I>
void call_with(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
    kernel(*(std::remove_reference_t<A>*)arguments[I]...);
}
template <class... A> void call(void (*kernel)(A...), void** arguments) {
    call_with(kernel, arguments, std::index_sequence_for<A...>());
}

inline void launch(void (*body)(void**), const int* grid, const int* block, size_t shared, void** arguments) {
    grid_size = {grid[0], grid[1], grid[2]}, block_size = {block[0], block[1], block[2]};
    const int blocks = grid[0] * grid[1] * grid[2], threads = block_threads();
    const size_t stack = 65536, all = stack * blocks * threads;
    auto* stacks = (unsigned char*)mmap(0, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    std::vector<Block> made(blocks);
    fibers.assign((size_t)blocks * threads, Fiber());
    for (int b = 0; b < blocks; b++) {
        made[b].index = {b % grid[0], b / grid[0] % grid[1], b / grid[0] / grid[1]};
        made[b].warps.resize((threads + 31) / 32);
        made[b].shared = (unsigned char*)std::aligned_alloc(128, shared / 128 * 128 + 128);
        std::memset(made[b].shared, 0xab, shared);  // shared memory holds anything at the start
        for (int t = 0; t < threads; t++) {
            Fiber& fiber = fibers[(size_t)b * threads + t];
            fiber = {nullptr, &made[b], t, {t % block[0], t / block[0] % block[1], t / block[0] / block[1]}, false};
            void** top = (void**)(stacks + ((size_t)b * threads + t + 1) * stack - 64);
            *--top = nullptr;
            *--top = (void*)fiber_body;
            for (int i = 0; i < 6; i++) *--top = nullptr;
            fiber.stack = top;
        }
    }
    entry = body, entry_arguments = arguments, running = &fibers[0];
    switch_stacks(&main_stack, running->stack);
    munmap(stacks, all);
    for (Block& block : made) std::free(block.shared);
}
