// For tests of what only a CPU as compute device has, such as device memory that the host reads: they skip on a GPU and say so.
#pragma once

#include <gtest/gtest.h>

#include <rapidsmpf/device/device.hpp>

#define RAPIDSMPF_ABOUT_THE_CPU()                                                             \
    if (::rapidsmpf::Device::current().kind() != ::rapidsmpf::DeviceKind::cpu) {              \
        GTEST_SKIP() << "this is about the memory of a CPU, and the compute device is a GPU"; \
    }                                                                                         \
    static_assert(true)
