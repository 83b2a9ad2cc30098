#include <rapidsmpf/communicator/single.hpp>

#include <stdexcept>

#include <gtest/gtest.h>

namespace rapidsmpf {
namespace {

TEST(SingleCommunicator, IsRankZeroOfOne) {
    SingleCommunicator const comm;
    EXPECT_EQ(comm.rank(), 0);
    EXPECT_EQ(comm.nranks(), 1);
}

TEST(SingleCommunicator, HasNobodyToTalkTo) {
    SingleCommunicator comm;
    EXPECT_THROW((void)comm.send({1}, 0, Tag{1, 0}), std::invalid_argument);
    EXPECT_THROW((void)comm.send({1}, 1, Tag{1, 0}), std::invalid_argument);
    EXPECT_FALSE(comm.recv_any(Tag{1, 0}).has_value());
}

TEST(SingleCommunicator, MayShareAProgressThread) {
    auto const progress = std::make_shared<ProgressThread>();
    SingleCommunicator const comm{config::Options{}, progress};
    EXPECT_EQ(comm.progress_thread(), progress);
}

}  // namespace
}  // namespace rapidsmpf
