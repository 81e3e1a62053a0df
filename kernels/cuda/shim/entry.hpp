// How a launch by name reaches a kernel: its parameters' kinds are taken from its C++ type and compared with those that
// the caller passes, which CUDA itself cannot do.
#pragma once

#include <string>
#include <utility>

#include "shim.hpp"

namespace shim {

// p pointer, u 32-bit unsigned, l 64-bit unsigned, f float.
template <class T> struct Kind;
template <class T> struct Kind<T*> {
    static constexpr char letter = 'p';
};
template <> struct Kind<unsigned> {
    static constexpr char letter = 'u';
};
template <> struct Kind<unsigned long long> {
    static constexpr char letter = 'l';
};
template <> struct Kind<float> {
    static constexpr char letter = 'f';
};

struct Entry {
    std::string kinds;
    void (*call)(void (*kernel)(), void** arguments);
    void (*kernel)();
};

template <class... A, size_t... I>
void spread(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
    kernel(*static_cast<A*>(arguments[I])...);
}

template <class... A> void call(void (*kernel)(), void** arguments) {
    spread(reinterpret_cast<void (*)(A...)>(kernel), arguments, std::index_sequence_for<A...>());
}

template <class... A> Entry entry(void (*kernel)(A...)) {
    return Entry{std::string{Kind<A>::letter...}, &call<A...>, reinterpret_cast<void (*)()>(kernel)};
}

// Adds a kernel to those that a launch finds.
struct Registered {
    Registered(const char* name, Entry entry);
};

} // namespace shim

#define SHIM_ENTRY(name) static shim::Registered registered_##name(#name, shim::entry(name));
