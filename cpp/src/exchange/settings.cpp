#include <rapidsmpf/exchange/settings.hpp>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include <rapidsmpf/core/detail/option_table.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/device/device.hpp>

namespace rapidsmpf::exchange {

Settings Settings::for_device(Device const& device) {
    Settings settings;
    if (device.kind() == DeviceKind::cuda) {
        settings.frame_bytes = std::size_t{64} << 20U;
        settings.bundle_bytes = settings.frame_bytes;
        settings.announce_bytes = std::size_t{1} << 30U;
        // Several peers may have a gigabyte each for us: who comes last must not wait for the others.
        settings.receive_limit =
            std::max(std::size_t{2} << 30U, static_cast<std::size_t>(device.total_memory()) / 16);
    }
    return settings;
}

void Settings::validate() const {
    auto const positive = [](std::size_t value, char const* name) {
        RAPIDSMPF_EXPECTS(value > 0, std::string{name} + " must be at least one byte", std::invalid_argument);
    };
    // gather_limit, eager_bytes and bundle_bytes may be zero: that turns gathering, unasked sending and bundles off.
    positive(frame_bytes, "exchange_frame_bytes");
    positive(announce_bytes, "exchange_announce_bytes");
    positive(split_bytes, "exchange_split_bytes");
    positive(receive_limit, "exchange_receive_limit");
    positive(flush_bytes, "exchange_flush_bytes");
}

Settings Settings::from_options(config::Options options, Device const& device) {
    auto settings = for_device(device);
    auto const given = options.get_strings();
    auto const read = [&](char const* name, config::Key<config::OptionType::bytes> key, std::size_t& value) {
        if (given.contains(name)) {
            value = static_cast<std::size_t>(config::get_bytes(options, key));
        }
    };
    read("exchange_gather_limit", "exchange_gather_limit", settings.gather_limit);
    read("exchange_frame_bytes", "exchange_frame_bytes", settings.frame_bytes);
    read("exchange_eager_bytes", "exchange_eager_bytes", settings.eager_bytes);
    read("exchange_announce_bytes", "exchange_announce_bytes", settings.announce_bytes);
    read("exchange_split_bytes", "exchange_split_bytes", settings.split_bytes);
    read("exchange_receive_limit", "exchange_receive_limit", settings.receive_limit);
    read("exchange_bundle_bytes", "exchange_bundle_bytes", settings.bundle_bytes);
    read("exchange_flush_bytes", "exchange_flush_bytes", settings.flush_bytes);
    if (given.contains("exchange_flush_delay")) {
        settings.flush_delay = std::chrono::round<std::chrono::microseconds>(
            std::chrono::duration<double>{config::get_seconds(options, "exchange_flush_delay")});
    }
    settings.validate();
    return settings;
}

}  // namespace rapidsmpf::exchange
