#include "weft/checkpoint/stored_part.h"

namespace weft {
namespace {

PartBox inside(const PartBox& box, const ElementRange& rows, const ElementRange& columns) {
  return {.rows = rows,
          .columns = columns,
          .first = box.first + (rows.begin - box.rows.begin) * box.row_stride + columns.begin - box.columns.begin,
          .row_stride = box.row_stride};
}

/// Adds what is left of a box without the one inside it.
void add_rest(const PartBox& box, const ElementRange& rows, const ElementRange& columns, std::vector<PartBox>& rest) {
  const auto add = [&](const ElementRange& r, const ElementRange& c) {
    if (r.size() > 0 && c.size() > 0) rest.push_back(inside(box, r, c));
  };
  add({box.rows.begin, rows.begin}, box.columns);
  add(rows, {box.columns.begin, columns.begin});
  add(rows, {columns.end, box.columns.end});
  add({rows.end, box.rows.end}, box.columns);
}

at::Tensor box_of(const BoxCopy& copy, const at::Tensor& flat, int64_t first, int64_t stride) {
  return flat.as_strided({copy.num_rows, copy.num_columns}, {stride, 1}, flat.storage_offset() + first);
}

}  // namespace

std::vector<PartBox> boxes_of(const WeightPiece& piece, const ElementRange& elements) {
  std::vector<PartBox> boxes;
  const int64_t width = piece.held_row_elements();
  if (elements.size() <= 0 || width == 0) return boxes;
  const int64_t first_column = piece.num_columns < 0 ? 0 : piece.first_column * (piece.row_elements() / piece.shape[1]);
  const auto add = [&](int64_t first_row, int64_t num_rows, int64_t begin, int64_t end) {
    if (num_rows <= 0 || begin == end) return;
    boxes.push_back({.rows = {piece.first_row + first_row, piece.first_row + first_row + num_rows},
                     .columns = {first_column + begin, first_column + end},
                     .first = first_row * width + begin - elements.begin,
                     .row_stride = width});
  };
  const int64_t first_whole = (elements.begin + width - 1) / width;
  const int64_t end_whole = elements.end / width;
  if (first_whole > end_whole) {  // inside one row
    add(end_whole, 1, elements.begin - end_whole * width, elements.end - end_whole * width);
    return boxes;
  }
  add(first_whole - 1, 1, elements.begin - (first_whole - 1) * width, width);
  add(first_whole, end_whole - first_whole, 0, width);
  add(end_whole, 1, 0, elements.end - end_whole * width);
  return boxes;
}

std::vector<BoxCopy> take_common(std::vector<PartBox>& missing, const std::vector<PartBox>& from) {
  std::vector<BoxCopy> copies;
  for (const PartBox& source : from) {
    std::vector<PartBox> rest;
    for (const PartBox& box : missing) {
      const ElementRange rows = common(box.rows, source.rows);
      const ElementRange columns = common(box.columns, source.columns);
      if (rows.size() <= 0 || columns.size() <= 0) {
        rest.push_back(box);
        continue;
      }
      copies.push_back({.num_rows = rows.size(),
                        .num_columns = columns.size(),
                        .to = inside(box, rows, columns).first,
                        .to_stride = box.row_stride,
                        .from = inside(source, rows, columns).first,
                        .from_stride = source.row_stride});
      add_rest(box, rows, columns, rest);
    }
    missing = std::move(rest);
  }
  return copies;
}

void copy_box(const BoxCopy& copy, const at::Tensor& to, const at::Tensor& from) {
  box_of(copy, to, copy.to, copy.to_stride).copy_(box_of(copy, from, copy.from, copy.from_stride));
}

void zero_box(const BoxCopy& copy, const at::Tensor& to) {
  box_of(copy, to, copy.to, copy.to_stride).zero_();
}

}  // namespace weft
