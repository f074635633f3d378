// VisionEncoder: the picture side of LFM2-VL. A SigLIP2 encoder for views of any grid, then the
// projector, which joins 2 x 2 patches into one row of the text model's width. Its rows depend on
// the view alone, bit for bit: not on other views of the same step, not on threads.
//
// Thread rule: loaded and run on the thread that owns the backend.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "image/view.h"
#include "model/vision/position_table.h"
#include "model/vision/vision_hparams.h"
#include "model/weight_loader.h"
#include "okibi/status.h"
#include "ops/ops.h"

namespace okibi::model {

// What each of the 256 values of a pixel becomes, per channel: the model's normalisation.
class PixelTable {
 public:
  PixelTable() = default;
  explicit PixelTable(const VisionHparams& h);
  // Patch (y, x) of a view in the order of the file's patch kernel: channel, row, column.
  // (3 * patch * patch)
  void read_patch(const image::View& view, int32_t y, int32_t x, float* out) const;

 private:
  int32_t patch_ = 0;
  std::array<std::array<float, 256>, 3> values_ = {};
};

class VisionEncoder {
 public:
  // Checks the file against the text model and loads its weights. With a planning loader the result
  // knows its sizes but must not run.
  static Result<std::unique_ptr<VisionEncoder>> load(WeightLoader& loader, const TextSide& text);

  const VisionHparams& hparams() const { return hparams_; }
  const std::vector<ops::Weight>& weights() const { return weights_; }
  uint64_t n_parameters() const { return n_parameters_; }
  // Image tokens of a view: the rows that encode() makes of it.
  int64_t n_tokens(const image::View& view) const;

  // Activation buffers for steps of up to max_patches patches, all views together. Once.
  Status add_activations(ops::Backend& backend, int64_t max_patches);
  // Bytes that add_activations and the kept position tables would take.
  uint64_t activation_bytes(int64_t max_patches) const;

  // Fails when a view's sides are no multiples of patch * factor or the views together have more
  // patches than there is room for.
  Status check(std::span<const image::View* const> views) const;
  // One result per view: (n_tokens, d_text) values. The views have passed check().
  std::vector<std::vector<float>> encode(ops::Backend& backend,
                                         std::span<const image::View* const> views);

 private:
  struct Biased {
    ops::Weight weight;
    ops::Vector bias;
  };
  struct Norm {
    ops::Vector weight, bias;
  };
  struct Layer {
    Norm norm1, norm2;
    Biased q, k, v, out, up, down;
  };
  struct Plan;  // the arrays behind a BatchPlan of views

  static Result<Biased> load_biased(WeightLoader& loader, const std::string& name, int64_t n_in,
                                    int64_t n_out);
  static Result<Norm> load_norm(WeightLoader& loader, const std::string& name, int64_t n);
  Result<Layer> load_layer(WeightLoader& loader, int32_t index) const;
  Status load_ends(WeightLoader& loader);
  void write_inputs(ops::Backend& backend, const image::View& view, int64_t first_row);
  void forward(ops::Backend& backend) const;

  VisionHparams hparams_;
  std::vector<ops::Weight> weights_;
  uint64_t n_parameters_ = 0;
  ops::Weight patch_embedding_;
  std::vector<float> patch_bias_;
  PixelTable pixels_;
  PositionTable positions_;
  std::vector<Layer> layers_;
  Norm post_norm_, input_norm_;
  Biased projector1_, projector2_;

  int64_t max_patches_ = 0;
  ops::Rows patches_, x_, normed_, q_, k_, v_, attended_, mixed_, ff_;
  ops::Rows joined_, hidden_, out_;
};

}  // namespace okibi::model
