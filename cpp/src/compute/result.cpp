#include "compute/result.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include <cudf/interop.hpp>

#include <rapidsmpf/device/detail/cuda_check.hpp>
#include <rapidsmpf/table/arrow_c.hpp>
#include <rapidsmpf/table/table.hpp>

#include "compute/tables.hpp"

namespace rapidsmpf::compute {

namespace {

std::shared_ptr<Schema const> schema_of(cudf::table_view const& rows) {
    std::vector<cudf::column_metadata> names;
    for (cudf::size_type i = 0; i < rows.num_columns(); ++i) {
        auto name = cudf::interop::get_column_metadata(rows.column(i));
        name.name = std::to_string(i);
        names.push_back(std::move(name));
    }
    return Schema::from_arrow(*cudf::to_arrow_schema(rows, names));
}

// Decimals as 128 bits: the interface says so of narrower ones too, but hands out their bytes as they are.
TablePtr with_wide_decimals(TablePtr rows, Work& work) {
    std::vector<ColumnPtr> columns = rows->release();
    for (auto& column : columns) {
        auto const type = column->type();
        if (type.id() == cudf::type_id::DECIMAL32 || type.id() == cudf::type_id::DECIMAL64) {
            column =
                cast_to(std::move(column), cudf::data_type{cudf::type_id::DECIMAL128, type.scale()}, work);
        }
    }
    return std::make_unique<cudf::table>(std::move(columns));
}

}  // namespace

Result::State::State(
    std::shared_ptr<Context> shared, std::shared_ptr<HeldRows> given, std::span<DataType const> types)
    : context{std::move(shared)},
      streams{*context, 1},
      work{*context, streams.get().front()},
      rows{std::move(given)},
      num_rows{rows->rows()},
      num_bytes{rows->bytes()} {
    auto none = rows->size() > 0 ? rows->copy(0, 0, 0, work) : empty_table(types);
    schema = schema_of(with_wide_decimals(std::move(none), work)->view());
}

Result::State::~State() {
    close();
}

void Result::State::close() noexcept {
    if (rows) {
        (void)cudaSetDevice(context->device());
        rows.reset();
    }
}

std::optional<Table> Result::State::next() {
    if (!rows) {
        return std::nullopt;
    }
    device::detail::OnDevice const here{context->device()};
    while (table < rows->size() && given_rows >= rows->rows_of(table)) {
        rows->drop(table);
        ++table;
        given_rows = 0;
    }
    if (table >= rows->size()) {
        close();
        return std::nullopt;
    }
    auto const left = rows->rows_of(table) - given_rows;
    auto const most = static_cast<std::int64_t>(std::max<std::size_t>(context->settings().output_rows, 1));
    auto const count = std::min(left, most);
    auto part = left <= most && given_rows == 0 ? rows->take(table, work)
                                                : rows->copy(table, given_rows, count, work);
    given_rows += count;
    auto const wide = with_wide_decimals(std::move(part), work);
    auto array = cudf::to_arrow_device(wide->view(), work.stream(), work.mr());
    auto const on_device =
        Table::import_device_array(schema_of(wide->view()), array.get(), Stream{work.stream().get()});
    return copy_to_host(on_device);
}

Result::Result(std::unique_ptr<State> state) : state_{std::move(state)} {}

Result::~Result() = default;

std::shared_ptr<Schema const> const& Result::schema() const noexcept {
    return state_->schema;
}

std::optional<Table> Result::next() {
    return state_->next();
}

void Result::close() noexcept {
    state_->close();
}

std::int64_t Result::num_rows() const noexcept {
    return state_->num_rows;
}

std::int64_t Result::byte_size() const noexcept {
    return state_->num_bytes;
}

std::span<PipelineStatistics const> Result::pipelines() const noexcept {
    return state_->pipelines;
}

}  // namespace rapidsmpf::compute
