#include "exchange/ended_frames.hpp"

#include <list>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace rapidsmpf::exchange::detail {
namespace {

enum class Notice : bool { no, yes };

class FakeSendTransfer final : public SendTransfer {
  public:
    explicit FakeSendTransfer(Notice notice) : notice_{notice} {}
    [[nodiscard]] bool start() override { return true; }
    [[nodiscard]] bool poll() override { return done; }
    [[nodiscard]] bool needs_notice() const noexcept override { return notice_ == Notice::yes; }

    bool done{false};

  private:
    Notice notice_;
};

struct Frame {
    int number;
    std::unique_ptr<FakeSendTransfer> send_transfer;
};

class EndedFrames : public testing::Test {
  protected:
    void add(Notice notice) {
        frames_.push_back(
            Frame{static_cast<int>(frames_.size()), std::make_unique<FakeSendTransfer>(notice)});
        send_transfers_.push_back(frames_.back().send_transfer.get());
    }
    void finish(int number) { send_transfers_.at(static_cast<std::size_t>(number))->done = true; }
    std::vector<int> take() {
        std::vector<int> ended;
        bool const any = take_ended(frames_, [&](Frame const& frame) { ended.push_back(frame.number); });
        EXPECT_EQ(any, !ended.empty());
        return ended;
    }

  private:
    std::list<Frame> frames_;
    std::vector<FakeSendTransfer*> send_transfers_;
};

TEST_F(EndedFrames, NoticesComeInTheOrderOfTheGrants) {
    for (int i = 0; i < 4; ++i) {
        add(Notice::yes);
    }
    finish(2);
    finish(1);
    EXPECT_EQ(take(), std::vector<int>{});  // a notice of one would be taken for the first
    finish(0);
    EXPECT_EQ(take(), (std::vector{0, 1, 2}));
    finish(3);
    EXPECT_EQ(take(), std::vector{3});
}

TEST_F(EndedFrames, MessagesNeedNoOrder) {
    add(Notice::no);
    add(Notice::yes);
    add(Notice::no);
    finish(2);
    EXPECT_EQ(take(), std::vector{2});
    finish(1);
    EXPECT_EQ(take(), std::vector{1});
    finish(0);
    EXPECT_EQ(take(), std::vector{0});
}

}  // namespace
}  // namespace rapidsmpf::exchange::detail
