#include "communicator/ucxx_address.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include <rapidsmpf/core/detail/token.hpp>

namespace rapidsmpf::detail {
namespace {

using Bytes = std::vector<std::uint8_t>;

Token some_token() {
    std::array<std::uint8_t, Token::size> bytes{};
    bytes.back() = 5;
    return Token{bytes};
}

Bytes address_of(std::size_t size) {
    Bytes bytes(size);
    for (std::size_t i = 0; i < size; ++i) {
        bytes[i] = static_cast<std::uint8_t>(i * 37 + 16);
    }
    return bytes;
}

TEST(UcxxAddress, UcxFindsItsBytesInFront) {
    auto const address = address_of(150);
    auto const sealed = seal_address(address, some_token());
    ASSERT_GT(sealed.size(), address.size());
    EXPECT_TRUE(std::equal(address.begin(), address.end(), sealed.begin()));
    EXPECT_TRUE(is_sealed(sealed));
    EXPECT_FALSE(is_sealed(address));
}

TEST(UcxxAddress, WhatIsWholeIsTaken) {
    auto const own = address_of(200);
    auto const root = checked_address(seal_address(address_of(150), some_token()), own);
    EXPECT_EQ(root.address, address_of(150));
    EXPECT_TRUE(root.token.matches(some_token()));
}

TEST(UcxxAddress, WithoutATokenItIsRefused) {
    EXPECT_THROW((void)checked_address(address_of(150), address_of(200)), std::invalid_argument);
}

TEST(UcxxAddress, EveryChangedByteOfASealedOneIsNoticed) {
    auto const own = address_of(200);
    auto const sealed = seal_address(address_of(150), some_token());
    for (std::size_t i = 0; i < sealed.size(); ++i) {
        auto changed = sealed;
        changed[i] ^= 1U;
        EXPECT_THROW((void)checked_address(changed, own), std::invalid_argument) << i;
    }
    auto shorter = sealed;
    shorter.erase(shorter.begin() + 100);
    EXPECT_THROW((void)checked_address(shorter, own), std::invalid_argument);
}

TEST(UcxxAddress, OtherBytesAreRefused) {
    auto const own = address_of(200);
    EXPECT_THROW((void)checked_address(Bytes{}, own), std::invalid_argument);
    EXPECT_THROW((void)checked_address(Bytes(15, own.front()), own), std::invalid_argument);
    EXPECT_THROW((void)checked_address(Bytes(300, 0), own), std::invalid_argument);
    EXPECT_THROW((void)checked_address(seal_address(Bytes{}, some_token()), own), std::invalid_argument);
    std::string const text{"192.168.0.1:4711 is where the root is"};
    EXPECT_THROW((void)checked_address(Bytes(text.begin(), text.end()), own), std::invalid_argument);
}

}  // namespace
}  // namespace rapidsmpf::detail
