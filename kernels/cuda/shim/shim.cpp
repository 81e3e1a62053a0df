// The fibers of one block, their barriers, and the launch. One block runs at a time, on the OS thread of the caller.
#include <setjmp.h>
#include <stdio.h>
#include <ucontext.h>

#include <map>
#include <memory>
#include <vector>

#include "entry.hpp"

namespace shim {

namespace {

enum State { READY, AT_BLOCK, AT_WARP, DONE };

const size_t STACK = 64 << 10;
// Bytes behind each shared array that nobody may write.
const size_t FENCE = 64;

struct Fiber {
    State state = DONE;
    bool started = false;
    ucontext_t first;
    jmp_buf place;
    // Parity of the warp's exchanges: the next one must not overwrite what a slower lane has yet to read.
    unsigned turn = 0;
    dim3 index;
    std::unique_ptr<char[]> stack;
};

struct Block {
    std::vector<Fiber> fibers;
    std::vector<uint32_t> slots; // [warp][parity][lane]
    std::map<int, std::vector<char>> arrays;
    const Entry* entry = nullptr;
    void** arguments = nullptr;
    Fiber* running = nullptr;
    jmp_buf scheduler;
    std::string wrong;
};

thread_local Block block;

std::map<std::string, Entry>& entries() {
    static std::map<std::string, Entry> known;
    return known;
}

void body() {
    block.entry->call(block.entry->kernel, block.arguments);
    block.running->state = DONE;
    _longjmp(block.scheduler, 1);
}

void wait(State state) {
    block.running->state = state;
    if (_setjmp(block.running->place) == 0) _longjmp(block.scheduler, 1);
}

void resume(Fiber& fiber) {
    block.running = &fiber;
    here.thread = fiber.index;
    if (_setjmp(block.scheduler) != 0) return;
    if (fiber.started) _longjmp(fiber.place, 1);
    fiber.started = true;
    setcontext(&fiber.first);
}

// Places in the order in which this round runs them: forward, backward or shuffled.
std::vector<size_t> order(size_t count, unsigned schedule, uint64_t& dice) {
    std::vector<size_t> places(count);
    for (size_t i = 0; i < count; i++) places[i] = schedule == 1 ? count - 1 - i : i;
    if (schedule < 2) return places;
    for (size_t i = count; i > 1; i--) {
        dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
        std::swap(places[i - 1], places[dice % i]);
    }
    return places;
}

size_t count(size_t first, size_t end, State state) {
    size_t found = 0;
    for (size_t i = first; i < end; i++) found += block.fibers[i].state == state;
    return found;
}

void release(size_t first, size_t end) {
    for (size_t i = first; i < end; i++) block.fibers[i].state = READY;
}

// Lets those go on who all stand at the same barrier; says whether anybody can.
bool release_complete(size_t size) {
    if (count(0, size, AT_BLOCK) == size) {
        release(0, size);
        return true;
    }
    bool any = false;
    for (size_t first = 0; first < size; first += 32) {
        size_t end = first + 32 < size ? first + 32 : size;
        if (count(first, end, AT_WARP) == end - first) {
            release(first, end);
            any = true;
        }
    }
    return any;
}

void run_block(size_t size, unsigned schedule, uint64_t& dice) {
    for (auto& array : block.arrays) std::fill(array.second.begin(), array.second.end(), char(0xff));
    for (size_t i = 0; i < size; i++) {
        Fiber& fiber = block.fibers[i];
        fiber.state = READY;
        fiber.started = false;
        fiber.turn = 0;
        fiber.index = dim3{unsigned(i), 0, 0};
        getcontext(&fiber.first);
        fiber.first.uc_stack.ss_sp = fiber.stack.get();
        fiber.first.uc_stack.ss_size = STACK;
        fiber.first.uc_link = nullptr;
        makecontext(&fiber.first, body, 0);
    }
    for (;;) {
        for (size_t place : order(size, schedule, dice)) {
            if (block.fibers[place].state == READY) resume(block.fibers[place]);
            if (!block.wrong.empty()) return;
        }
        if (count(0, size, DONE) == size) break;
        if (!release_complete(size)) {
            block.wrong = "a barrier that not all threads reach";
            return;
        }
    }
    for (auto& array : block.arrays) {
        for (size_t i = array.second.size() - FENCE; i < array.second.size(); i++) {
            if (array.second[i] != char(0xff)) block.wrong = "a write beyond a shared array";
        }
    }
}

void run(const unsigned grid[3], unsigned threads, unsigned schedule) {
    while (block.fibers.size() < threads) {
        block.fibers.emplace_back();
        block.fibers.back().stack.reset(new char[STACK]);
    }
    block.slots.assign((threads + 31) / 32 * 64, 0);
    block.arrays.clear();
    here.grid = dim3{grid[0], grid[1], grid[2]};
    here.block_size = dim3{threads, 1, 1};
    size_t blocks = size_t(grid[0]) * grid[1] * grid[2];
    uint64_t dice = 0x9e3779b97f4a7c15u + schedule;
    for (size_t index : order(blocks, schedule, dice)) {
        here.block = dim3{unsigned(index % grid[0]), unsigned(index / grid[0] % grid[1]), unsigned(index / grid[0] / grid[1])};
        run_block(threads, schedule, dice);
        if (!block.wrong.empty()) return;
    }
}

} // namespace

thread_local Thread here;

Registered::Registered(const char* name, Entry entry) { entries()[name] = entry; }

void block_barrier() { wait(AT_BLOCK); }

void warp_barrier() { wait(AT_WARP); }

uint32_t exchange(uint32_t bits, unsigned lane, unsigned mask) {
    Fiber& fiber = *block.running;
    if (mask != 0xffffffffu || here.block_size.x % 32 != 0) block.wrong = "a shuffle of part of a warp";
    uint32_t* slots = &block.slots[(fiber.index.x / 32 * 2 + fiber.turn) * 32];
    fiber.turn ^= 1;
    slots[fiber.index.x % 32] = bits;
    warp_barrier();
    return slots[lane % 32];
}

void* shared(int key, size_t bytes) {
    std::vector<char>& array = block.arrays[key];
    if (array.empty()) array.resize(bytes + FENCE, char(0xff));
    return array.data();
}

} // namespace shim

// Runs a kernel; returns 0, or 1 with the reason in `reason`. `schedule`: 0 forward, 1 backward, else shuffled by it.
extern "C" int shim_launch(const char* name, const char* kinds, void** arguments, const unsigned* grid, unsigned threads,
                           unsigned schedule, char* reason, size_t reason_bytes) {
    using namespace shim;
    auto found = entries().find(name);
    std::string wrong;
    if (found == entries().end()) {
        wrong = "there is no such kernel";
    } else if (found->second.kinds != kinds) {
        wrong = "its parameters are " + found->second.kinds + ", the caller passes " + kinds;
    } else {
        block.entry = &found->second;
        block.arguments = arguments;
        block.wrong.clear();
        run(grid, threads, schedule);
        wrong = block.wrong;
    }
    snprintf(reason, reason_bytes, "%s: %s", name, wrong.c_str());
    return wrong.empty() ? 0 : 1;
}
