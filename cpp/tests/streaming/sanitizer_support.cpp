// What ThreadSanitizer must not report here.
//
// libstdc++ counts the owners of an exception with atomics inside its own, uninstrumented library, so that the
// sanitizer takes the release by the last owner for a race with what earlier owners read.
extern "C" char const* __tsan_default_suppressions();
extern "C" char const* __tsan_default_suppressions() {
    return "race:std::__exception_ptr::exception_ptr::_M_release\n";
}
