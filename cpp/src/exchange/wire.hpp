// The control messages of the exchange protocol: what ranks tell each other besides payload bytes.
//
// A message is a header (magic, operation id) and any number of sections, little endian, no padding:
//
//   grants   u32 n                    send the payloads of the next n frames that you announced, as messages
//   address  u32 n, n x (u32 region, u64 offset)   write the pieces with data of the next frame there
//   written  u32 n                    the next n frames for which you gave addresses have been written
//   credit   u64 bytes                so much of what you sent unasked has been taken in
//   counts   u32 n, n x (u32 partition, u64 chunks)   I have inserted so many, and will insert no more
//   eager    pieces, metadata, data   pieces that travel inside the message
//   frame    u64 gather_limit, u64 split_bytes, pieces, metadata     I have these; ask for the data
//   final    u8 kind, u64 payload messages, i32 origin, text         my last message in this operation
//
// Messages with the operation id that no operation has (OperationDispatcher::control_op) are about all of them. A header
// alone is a goodbye: the sender closes its communicator and sends nothing more. Otherwise one section follows; by the last
// three ranks agree on how payloads travel between them (transport_selector.hpp):
//
//   abandon  i32 first, i32 last, i32 origin, text    nothing comes of the operations with these ids any more
//   offer    u8 kind, u32 n, n bytes  you may write to my memory, which is this
//   answer   u8 kind, u32 n, text     I will (kind), or (messages) why not
//   region   u32 id, u64 size, u32 n, n bytes         my memory has this region, too
//
// where pieces = u32 n, n x (u32 partition, u64 sequence, u64 metadata size, u64 data size), and metadata and
// data are those of the pieces, one after the other. The payload of a frame is the data of its pieces with at
// most gather_limit bytes as one run of bytes, then that of each larger piece; each run is divided into messages
// of split_bytes. `final` is the last section of the last message. A piece may be a bundle of many chunks (bundle.hpp).
//
// In the words of UCX and MPI: an `eager` section is the eager protocol, everything else a rendezvous.
//
//   frame (announce)          RTS, ready to send: sizes and metadata, no data
//   grants, address (grant)   RTR, ready to receive: send it as messages, or write (put) it to these remote addresses
//   written                   ATP, acknowledgement of the put
//   region (and offer)        a memory handle: what a remote key (rkey) is unpacked from
//   goodbye                   FIN of a connection
//
// Everything that is read is checked: it comes from another process.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/device/detail/exported_memory.hpp>

namespace rapidsmpf::exchange {

using PartitionId = std::uint32_t;

// What a piece is: a chunk of a partition, by its number there, or a bundle of many chunks (bundle.hpp).
class PieceId {
  public:
    PieceId(PartitionId partition, std::uint64_t sequence) noexcept
        : partition_{partition}, sequence_{sequence} {}
    [[nodiscard]] static PieceId bundle_of(std::uint64_t chunks) noexcept {
        PieceId id{0, 0};
        id.bundled_ = chunks;
        return id;
    }

    [[nodiscard]] bool is_bundle() const noexcept { return bundled_.has_value(); }
    // How many chunks it is.
    [[nodiscard]] std::uint64_t chunks() const noexcept { return bundled_.value_or(1); }
    // Of a chunk.
    [[nodiscard]] PartitionId partition() const noexcept { return partition_; }
    [[nodiscard]] std::uint64_t sequence() const noexcept { return sequence_; }

  private:
    PartitionId partition_;
    std::uint64_t sequence_;
    std::optional<std::uint64_t> bundled_;  // chunks of a bundle
};

struct PieceHeader {
    PieceHeader(PieceId id_, std::uint64_t metadata_size_, std::uint64_t data_size_)
        : id{id_}, metadata_size{metadata_size_}, data_size{data_size_} {}
    PieceId id;
    std::uint64_t metadata_size;
    std::uint64_t data_size;

    static constexpr std::size_t wire_size = 4 + 8 + 8 + 8;
    // What the piece takes in a message, its data aside.
    [[nodiscard]] std::uint64_t listing_bytes() const noexcept { return wire_size + metadata_size; }
};

struct PartitionCount {
    PartitionCount(PartitionId partition_, std::uint64_t chunks_) : partition{partition_}, chunks{chunks_} {}
    PartitionId partition;
    std::uint64_t chunks;
};

// How payloads travel between two ranks.
enum class TransportKind : std::uint8_t {
    messages = 0,
    peer_memory = 1,         // of the host
    device_peer_memory = 2,  // of a GPU
};

// Where a piece is to be written: in which of the regions of the receiver's memory, and where in that.
struct RemoteAddress {
    std::uint32_t region{0};
    std::uint64_t offset{0};
    static constexpr std::size_t wire_size = 4 + 8;
    friend bool operator==(RemoteAddress const&, RemoteAddress const&) = default;
};

// Leave to send the next frames: as messages, or one of them to these addresses.
struct Grant {
    std::uint32_t frames{0};
    std::vector<RemoteAddress> addresses;
};

struct Offer {
    TransportKind kind{TransportKind::messages};
    std::vector<std::uint8_t> memory;
};

struct Answer {
    TransportKind kind{TransportKind::messages};
    std::string reason;
};

enum class FinalKind : std::uint8_t {
    finished = 0,
    abandoned = 1,  // by a rank, for a reason
    left = 2,       // for want of a rank that has left
    failed = 3,     // with all operations of its range: `origin` gave up what they belong to
};

struct Final {
    FinalKind kind{FinalKind::finished};
    std::uint64_t payload_messages{0};  // that the sender has sent to this receiver in the whole operation
    Rank origin{0};                     // of an abandonment: who began it, or who has left or failed
    std::string reason;
};

// Operations that a rank gave up together, whether it had begun them or not: those of one query.
struct AbandonedRange {
    AbandonedRange(OpId first_, OpId last_, Rank origin_, std::string reason_)
        : first{first_}, last{last_}, origin{origin_}, reason{std::move(reason_)} {}
    OpId first;
    OpId last;  // the last one, too
    Rank origin;
    std::string reason;
    [[nodiscard]] bool contains(OpId op) const noexcept { return first <= op && op <= last; }
};

// The pieces of a section; metadata and data are views into the message.
struct PieceList {
    std::vector<PieceHeader> pieces;
    std::span<std::uint8_t const> metadata;
    std::span<std::uint8_t const> data;  // of eager pieces
    std::uint64_t gather_limit{0};       // of a frame
    std::uint64_t split_bytes{0};        // of a frame
};

class MessageWriter {
  public:
    explicit MessageWriter(OpId op);

    void grants(std::uint32_t frames);
    void addresses(std::span<RemoteAddress const> addresses);
    void written(std::uint32_t frames);
    void credit(std::uint64_t bytes);
    void counts(std::span<PartitionCount const> counts);
    // Begin a section with pieces; their metadata follows by append(), in order, then the data of eager ones.
    void eager(std::span<PieceHeader const> pieces);
    void frame(std::span<PieceHeader const> pieces, std::uint64_t gather_limit, std::uint64_t split_bytes);
    void append(std::span<std::uint8_t const> bytes);
    void final(Final const& final);
    void abandon(AbandonedRange const& range);
    void offer(Offer const& offer);
    void answer(Answer const& answer);
    void region(device::ExportedRegion const& region);

    [[nodiscard]] bool has_sections() const noexcept;
    [[nodiscard]] std::vector<std::uint8_t> take() && { return std::move(bytes_); }

  private:
    void pieces(std::span<PieceHeader const> pieces);
    void text(std::string const& text);
    std::vector<std::uint8_t> bytes_;
};

// A message of one operation that was read. Views into the bytes it was read from.
struct OperationMessage {
    std::vector<Grant> grants;  // in their order
    std::uint32_t written{0};
    std::uint64_t credit{0};
    std::vector<PartitionCount> counts;
    std::vector<PieceList> eager;
    std::vector<PieceList> frames;
    std::optional<Final> final;

    // How many frames are granted in all.
    [[nodiscard]] std::uint64_t granted() const noexcept;
};

// The sender closes its communicator and sends nothing more.
struct Goodbye {};
// A message about all operations.
using ControlMessage = std::variant<Goodbye, AbandonedRange, Offer, Answer, device::ExportedRegion>;

// The operation that a message belongs to. Throws FormatError.
[[nodiscard]] OpId read_op(std::span<std::uint8_t const> bytes);
// A message of an operation. Throws FormatError.
[[nodiscard]] OperationMessage read_operation_message(std::span<std::uint8_t const> bytes);
// A message with the operation id that no operation has. Throws FormatError.
[[nodiscard]] ControlMessage read_control_message(std::span<std::uint8_t const> bytes);

}  // namespace rapidsmpf::exchange
