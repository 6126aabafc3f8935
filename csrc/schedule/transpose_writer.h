// TransposeWriter: the writing of one kernel of the template transpose. See transpose.h for its structure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/lowering.h"
#include "schedule/transpose.h"

namespace meshfuse {

class TransposeWriter {
 public:
  TransposeWriter(const Group& group, const Coordinates& coordinates, const TransposeAxes& axes,
                  const DeviceInfo& device);
  KernelPlan write();

 private:
  using Specs = std::vector<tile::Builder::DigitSpec>;
  struct Space {
    int64_t id = 0;
    IntExpr m, n;  // its coordinates
    int64_t axisOfM = 0;
  };

  void onCpu();
  void onGpu();
  Space space(const char* name, const char* m, const IntExpr& rows, Specs ofM, const char* n, Specs ofN);
  void loop(int64_t space, int64_t axis, int64_t digit, const std::function<void()>& body);
  Lowering::Position position(const TensorView* tensor, const Space& at) const;
  void storeOutputs(const Space& at, bool alongN);
  bool streams(const TensorView* output) const;
  int64_t widest() const;

  // -- CPU
  struct Corner {  // the first position of a strip
    IntExpr m, n;
  };
  void chooseBlocks();
  const TensorView* unalignedOutput() const;
  IntExpr offsetInOutput(const IntExpr& n);
  Specs partDigit(const IntExpr& extent, int64_t size, const char* grid);
  Specs outerDigitsOfN();
  IntExpr corner(const Space& of, int64_t axis, std::initializer_list<std::string_view> loops) const;
  void makeSpaces();
  int64_t serial(const Space& of, int64_t axis, std::string_view symbol) const;
  std::vector<int64_t> makeScratch();
  void readStrip(const std::vector<int64_t>& scratch);
  void writeStrip(const std::vector<int64_t>& scratch);
  void writeLines(const std::vector<int64_t>& scratch);
  void prefetchNext();
  void prefetchAlongM();
  // -- CPU, lines that begin within squares: transpose_shifted.cpp
  void writeShifted();
  void shiftSquare(const std::vector<int64_t>& scratch, std::vector<tile::Pred> isNext);
  void writeEnd(const std::string& name, const IntExpr& first, int64_t lines);

  const Group& group_;
  const DeviceInfo& device_;
  KernelPlan plan_;
  tile::Builder builder_;
  Lowering lowering_;
  const Coordinates c_;
  TransposeAxes axes_;
  IntExpr batch_ = 0;
  TransposeBlocks blocks_;
  Space read_, convert_, write_;
  const TensorView* unaligned_ = nullptr;  // CPU: the output whose rows begin within lines
  int64_t lead_ = 0;                       // the rows before a block that it also reads, for the lines that begin there
  bool shifts_ = false;                    // lines are taken from squares in registers
  bool fetchesRows_ = false;               // of the next block
  bool fetchesAlongM_ = false;
  bool isStaged_ = false;         // strips lie in scratch before they are written
  std::vector<tile::Pred> ends_;  // conditions of the lines that reach beyond the ends of rows
  Corner corner_;                 // of the current strip
};

}  // namespace meshfuse
