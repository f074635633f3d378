// Checks the places of tensors in the data section; see layout.h.
#include "gguf/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/checked_math.h"
#include "gguf/value.h"

namespace okibi::gguf {
namespace {

Status check_place(const TensorInfo& info, uint64_t alignment, uint64_t data_bytes) {
  if (info.offset % alignment != 0) {
    return bad_data(fmt::format("tensor {} has offset {}, expected a multiple of the alignment {}",
                                quoted(info.name), info.offset, alignment));
  }
  if (info.offset > data_bytes || info.n_bytes > data_bytes - info.offset) {
    return bad_data(fmt::format(
        "tensor {} {} {} needs {} bytes at offset {}, the data section has {}", quoted(info.name),
        shape_text(info), name_of(info.type), info.n_bytes, info.offset, data_bytes));
  }
  return ok_status();
}

// Sizes padded to the alignment must add up within 64 bits: whoever plans memory relies on it.
Status check_total(const ParsedFile& file, uint64_t data_begin) {
  uint64_t total = data_begin;
  for (const TensorInfo& info : file.tensors) {
    uint64_t padded;
    if (!checked_align_up(info.n_bytes, file.alignment, &padded) ||
        !checked_add(total, padded, &total)) {
      return bad_data(
          fmt::format("the sizes up to tensor {} ({} bytes) add up to more than 64 bits",
                      quoted(info.name), info.n_bytes));
    }
  }
  return ok_status();
}

Status check_overlap(uint64_t data_begin, ParsedFile* file) {
  std::vector<const TensorInfo*> order;
  for (const TensorInfo& info : file->tensors) {
    if (info.n_bytes > 0) order.push_back(&info);
  }
  std::sort(order.begin(), order.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return a->offset < b->offset; });
  uint64_t expected = data_begin, n_gaps = 0;
  const TensorInfo* first_after_gap = nullptr;
  for (size_t i = 0; i < order.size(); ++i) {
    const TensorInfo& info = *order[i];
    if (i > 0 && info.offset < order[i - 1]->offset + order[i - 1]->n_bytes) {
      return bad_data(fmt::format("tensors {} and {} share bytes of the data section",
                                  quoted(order[i - 1]->name), quoted(info.name)));
    }
    if (info.offset > expected && n_gaps++ == 0) first_after_gap = &info;
    expected = align_up(info.offset - data_begin + info.n_bytes, file->alignment) + data_begin;
  }
  if (n_gaps > 0) {
    file->warnings.push_back(
        fmt::format("{} gap(s) in the data section, the first before tensor {}", n_gaps,
                    quoted(first_after_gap->name)));
  }
  return ok_status();
}

// The type that most matrices have when a file bears this label; none for mixtures and unknown
// numbers.
std::optional<DType> labelled_type(uint64_t file_type) {
  switch (file_type) {
    case 0:
      return DType::kF32;
    case 1:
      return DType::kF16;
    case 2:
      return DType::kQ4_0;
    case 3:
      return DType::kQ4_1;
    case 7:
      return DType::kQ8_0;
    case 8:
      return DType::kQ5_0;
    case 9:
      return DType::kQ5_1;
    case 14:
    case 15:
      return DType::kQ4_K;
    case 16:
    case 17:
      return DType::kQ5_K;
    case 18:
      return DType::kQ6_K;
    case 25:
      return DType::kIQ4_NL;
    case 30:
      return DType::kIQ4_XS;
    case 32:
      return DType::kBF16;
    default:
      return std::nullopt;
  }
}

void check_label(ParsedFile* file) {
  const Value* label = file->find("general.file_type");
  if (label == nullptr || label->type != ValueType::kU32) return;
  const std::optional<DType> type = labelled_type(label->bits);
  if (!type || file->tensors.empty()) return;
  for (const TensorInfo& info : file->tensors) {
    if (info.type == *type) return;
  }
  file->warnings.push_back(fmt::format("general.file_type {} says {}, but no tensor has that type",
                                       label->bits, name_of(*type)));
}

}  // namespace

Status place_tensors(uint64_t infos_end, uint64_t file_bytes, ParsedFile* file) {
  uint64_t data_begin;
  if (!checked_align_up(infos_end, file->alignment, &data_begin)) {
    return bad_data(
        fmt::format("the tensor directory ends at byte {}, too far to align", infos_end));
  }
  if (file->tensors.empty()) return ok_status();
  if (data_begin > file_bytes) {
    return bad_data(fmt::format("the data section should start at byte {}, the file has {} bytes",
                                data_begin, file_bytes));
  }
  for (const TensorInfo& info : file->tensors) {
    OKIBI_RETURN_IF_ERROR(check_place(info, file->alignment, file_bytes - data_begin));
  }
  OKIBI_RETURN_IF_ERROR(check_total(*file, data_begin));
  for (TensorInfo& info : file->tensors) info.offset += data_begin;
  OKIBI_RETURN_IF_ERROR(check_overlap(data_begin, file));
  check_label(file);
  return ok_status();
}

}  // namespace okibi::gguf
