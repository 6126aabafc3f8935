#include "ops/pointwise.h"

#include <cmath>
#include <map>

#include "ops/built.h"

namespace meshfuse {
namespace {

TensorView* apply(PointOp op, const Views& operands) {
  std::vector<Operand> list(operands.begin(), operands.end());
  return pointOp(op, list)->asTensor();
}

PointOp opNamed(const std::string& name) {
  std::optional<PointOp> op = parsePointOp(name);
  EXPECT_TRUE(op.has_value()) << name;
  return op.value_or(PointOp::Add);
}

struct UnaryRow {
  std::string name;
  std::vector<double> in;
  std::vector<double> out;
};

// Values computed with 40 digits by mpmath, a library of arbitrary precision.
const std::vector<UnaryRow> kUnary = {
    {"abs",
     {-2.5, -1.0, -0.75, -0.0078125, 0.0, 0.0009765625, 0.5, 1.0, 1.5, 3.25, 9.0},
     {2.5, 1.0, 0.75, 0.0078125, 0.0, 0.0009765625, 0.5, 1.0, 1.5, 3.25, 9.0}},
    {"acos",
     {-0.984375, -0.5, -0.0009765625, 0.0, 0.125, 0.75, 0.9990234375},
     {2.964584967301762, 2.0943951023931957, 1.571772889450117, 1.5707963267948966, 1.4454684956268313,
      0.7227342478134157, 0.04419777114571532}},
    {"acosh",
     {1.0, 1.0078125, 1.5, 3.0, 100.0},
     {0.0, 0.12491876251108061, 0.9624236501192069, 1.762747174039086, 5.298292365610485}},
    {"asin",
     {-0.984375, -0.5, -0.0009765625, 0.0, 0.125, 0.75, 0.9990234375},
     {-1.3937886405068658, -0.5235987755982989, -0.0009765626552204957, 0.0, 0.1253278311680654, 0.848062078981481,
      1.5265985556491812}},
    {"asinh",
     {-2.5, -1.0, -0.75, -0.0078125, 0.0, 0.0009765625, 0.5, 1.0, 1.5, 3.25, 9.0},
     {-1.6472311463710958, -0.881373587019543, -0.6931471805599453, -0.007812420529323008, 0.0, 0.0009765623447796375,
      0.48121182505960347, 0.881373587019543, 1.1947632172871092, 1.894672135423041, 2.8934439858858716}},
    {"atan",
     {-2.5, -1.0, -0.75, -0.0078125, 0.0, 0.0009765625, 0.5, 1.0, 1.5, 3.25, 9.0},
     {-1.1902899496825317, -0.7853981633974483, -0.6435011087932844, -0.007812341060101111, 0.0, 0.0009765621895593195,
      0.4636476090008061, 0.7853981633974483, 0.982793723247329, 1.2722973952087173, 1.460139105621001}},
    {"atanh",
     {-0.984375, -0.5, -0.0009765625, 0.0, 0.125, 0.75, 0.9990234375},
     {-2.4220935432292956, -0.5493061443340549, -0.000976562810441036, 0.0, 0.12565721414045303, 0.9729550745276566,
      3.8120652928306447}},
    {"ceil",
     {-2.5, -1.0, -0.75, -0.0078125, 0.0, 0.0009765625, 0.5, 1.0, 1.5, 3.25, 9.0},
     {-2.0, -1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 4.0, 9.0}},
    {"cos",
     {-2.5, -1.0, -0.75, -0.0078125, 0.0, 0.0009765625, 0.5, 1.0, 1.5, 3.25, 9.0},
     {-0.8011436155469337, 0.5403023058681398, 0.7316888688738209, 0.9999694825770951, 1.0, 0.9999995231628797,
      0.8775825618903728, 0.5403023058681398, 0.0707372016677029, -0.9941296760805463, -0.9111302618846769}},
    {"cosh",
     {-2.5, -1.0, -0.75, -0.0078125, 0.0, 0.0009765625, 0.5, 1.0, 1.5, 3.25, 9.0},
     {6.132289479663686, 1.5430806348152437, 1.2946832846768448, 1.0000305177333457, 1.0, 1.0000004768371962,
      1.1276259652063807, 1.5430806348152437, 2.352409615243247, 12.914557062512392, 4051.542025492594}},
    {"exp",
     {-2.5, -1.0, -0.75, -0.0078125, 0.0, 0.0009765625, 0.5, 1.0, 1.5, 3.25, 9.0},
     {0.0820849986238988, 0.36787944117144233, 0.4723665527410147, 0.9922179382602435, 1.0, 1.0009770394924165,
      1.6487212707001282, 2.718281828459045, 4.4816890703380645, 25.790339917193062, 8103.083927575384}},
    {"exp2",
     {-2.5, -1.0, -0.75, -0.0078125, 0.0, 0.0009765625, 0.5, 1.0, 1.5, 3.25, 9.0},
     {0.1767766952966369, 0.5, 0.5946035575013605, 0.9945994234836332, 1.0, 1.0006771306930664, 1.4142135623730951, 2.0,
      2.8284271247461903, 9.513656920021768, 512.0}},
    {"expm1",
     {-2.5, -1.0, -0.75, -0.0078125, 0.0, 0.0009765625, 0.5, 1.0, 1.5, 3.25, 9.0},
     {-0.9179150013761012, -0.6321205588285577, -0.5276334472589853, -0.007782061739756488, 0.0, 0.0009770394924165351,
      0.6487212707001282, 1.7182818284590453, 3.481689070338065, 24.790339917193062, 8102.083927575384}},
    {"erf",
     {-2.5, -1.0, -0.75, -0.0078125, 0.0, 0.0009765625, 0.5, 1.0, 1.5, 3.25, 9.0},
     {-0.999593047982555, -0.8427007929497149, -0.7111556336535151, -0.008815282895179188, 0.0, 0.0011019324300718147,
      0.5204998778130465, 0.8427007929497149, 0.9661051464753108, 0.9999956972205363, 1.0}},
    {"erfc",
     {-2.5, -1.0, -0.75, -0.0078125, 0.0, 0.0009765625, 0.5, 1.0, 1.5, 3.25, 9.0},
     {1.999593047982555, 1.8427007929497148, 1.7111556336535152, 1.0088152828951793, 1.0, 0.9988980675699282,
      0.4795001221869535, 0.15729920705028513, 0.033894853524689274, 4.302779463675122e-06, 4.13703174651381e-37}},
    {"erfinv",
     {-0.984375, -0.5, -0.0009765625, 0.0, 0.125, 0.75, 0.9990234375},
     {-1.7094723742995115, -0.4769362762044699, -0.0008654561979671376, 0.0, 0.11123545184094996, 0.8134198475976185,
      2.331467773621948}},
    {"floor",
     {-2.5, -1.0, -0.75, -0.0078125, 0.0, 0.0009765625, 0.5, 1.0, 1.5, 3.25, 9.0},
     {-3.0, -1.0, -1.0, -1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 3.0, 9.0}},
    {"frac",
     {-2.5, -1.0, -0.75, -0.0078125, 0.0, 0.0009765625, 0.5, 1.0, 1.5, 3.25, 9.0},
     {-0.5, 0.0, -0.75, -0.0078125, 0.0, 0.0009765625, 0.5, 0.0, 0.5, 0.25, 0.0}},
    {"lgamma",
     {-2.5, -0.75, 0.25, 0.5, 1.0, 1.5, 3.25, 9.0, 100.0},
     {-0.056243716497674054, 1.5757045971498584, 1.2880225246980774, 0.5723649429247001, 0.0, -0.12078223763524522,
      0.9358019311087253, 10.60460290274525, 359.1342053695754}},
    {"log",
     {0.0009765625, 0.25, 0.5, 1.0, 1.25, 2.0, 3.25, 10.0, 12345.0},
     {-6.931471805599453, -1.3862943611198906, -0.6931471805599453, 0.0, 0.22314355131420976, 0.6931471805599453,
      1.1786549963416462, 2.302585092994046, 9.42100640177928}},
    {"log10",
     {0.0009765625, 0.25, 0.5, 1.0, 1.25, 2.0, 3.25, 10.0, 12345.0},
     {-3.010299956639812, -0.6020599913279624, -0.3010299956639812, 0.0, 0.09691001300805642, 0.3010299956639812,
      0.5118833609788743, 1.0, 4.091491094267951}},
    {"log1p",
     {-0.75, -0.0009765625, 0.0, 0.0009765625, 1.0, 100.0},
     {-1.3862943611198906, -0.0009770396478266127, 0.0, 0.0009760859730554589, 0.6931471805599453, 4.61512051684126}},
    {"log2",
     {0.0009765625, 0.25, 0.5, 1.0, 1.25, 2.0, 3.25, 10.0, 12345.0},
     {-10.0, -2.0, -1.0, 0.0, 0.32192809488736235, 1.0, 1.7004397181410922, 3.321928094887362, 13.591639216030144}},
    {"neg",
     {-2.5, -1.0, -0.75, -0.0078125, 0.0, 0.0009765625, 0.5, 1.0, 1.5, 3.25, 9.0},
     {2.5, 1.0, 0.75, 0.0078125, 0.0, -0.0009765625, -0.5, -1.0, -1.5, -3.25, -9.0}},
    {"reciprocal",
     {0.0009765625, 0.25, 0.5, 1.0, 1.25, 2.0, 3.25, 10.0, 12345.0},
     {1024.0, 4.0, 2.0, 1.0, 0.8, 0.5, 0.3076923076923077, 0.1, 8.100445524503848e-05}},
    {"round", {-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.75, -0.75, 3.0}, {-2.0, -2.0, 0.0, 0.0, 2.0, 2.0, 1.0, -1.0, 3.0}},
    {"rsqrt",
     {0.0009765625, 0.25, 0.5, 1.0, 1.25, 2.0, 3.25, 10.0, 12345.0},
     {32.0, 2.0, 1.4142135623730951, 1.0, 0.8944271909999159, 0.7071067811865476, 0.5547001962252291,
      0.31622776601683794, 0.009000247510209843}},
    {"sigmoid",
     {-2.5, -1.0, -0.75, -0.0078125, 0.0, 0.0009765625, 0.5, 1.0, 1.5, 3.25, 9.0},
     {0.07585818002124355, 0.2689414213699951, 0.320821300824607, 0.4980468849340468, 0.5, 0.5002441406055974,
      0.6224593312018546, 0.7310585786300049, 0.8175744761936437, 0.9626731126558705, 0.9998766054240138}},
    {"sign",
     {-2.5, -1.0, -0.75, -0.0078125, 0.0, 0.0009765625, 0.5, 1.0, 1.5, 3.25, 9.0},
     {-1.0, -1.0, -1.0, -1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0}},
    {"sin",
     {-2.5, -1.0, -0.75, -0.0078125, 0.0, 0.0009765625, 0.5, 1.0, 1.5, 3.25, 9.0},
     {-0.5984721441039565, -0.8414709848078965, -0.6816387600233341, -0.0078124205273828315, 0.0, 0.0009765623447795783,
      0.479425538604203, 0.8414709848078965, 0.9974949866040544, -0.10819513453010837, 0.4121184852417566}},
    {"sinh",
     {-2.5, -1.0, -0.75, -0.0078125, 0.0, 0.0009765625, 0.5, 1.0, 1.5, 3.25, 9.0},
     {-6.0502044810397875, -1.1752011936438014, -0.82231673193583, -0.007812579473102233, 0.0, 0.0009765626552204365,
      0.5210953054937474, 1.1752011936438014, 2.1292794550948173, 12.87578285468067, 4051.54190208279}},
    {"sqrt",
     {0.0009765625, 0.25, 0.5, 1.0, 1.25, 2.0, 3.25, 10.0, 12345.0, 0.0},
     {0.03125, 0.5, 0.7071067811865476, 1.0, 1.118033988749895, 1.4142135623730951, 1.8027756377319946,
      3.1622776601683795, 111.1080555135405, 0.0}},
    {"tan",
     {-2.5, -1.0, -0.75, -0.0078125, 0.0, 0.0009765625, 0.5, 1.0, 1.5, 3.25, 9.0},
     {0.7470222972386603, -1.5574077246549023, -0.9315964599440725, -0.007812658949600008, 0.0, 0.0009765628104409765,
      0.5463024898437905, 1.5574077246549023, 14.101419947171719, 0.10883402551332971, -0.45231565944180985}},
    {"tanh",
     {-2.5, -1.0, -0.75, -0.0078125, 0.0, 0.0009765625, 0.5, 1.0, 1.5, 3.25, 9.0},
     {-0.9866142981514303, -0.7615941559557649, -0.6351489523872873, -0.007812341058161014, 0.0, 0.0009765621895592603,
      0.46211715726000974, 0.7615941559557649, 0.9051482536448664, 0.996997635486526, 0.999999969540041}},
    {"trunc",
     {-2.5, -1.0, -0.75, -0.0078125, 0.0, 0.0009765625, 0.5, 1.0, 1.5, 3.25, 9.0},
     {-2.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 3.0, 9.0}},
};

TEST(Pointwise, UnaryFunctionsGiveTheRoundedTrueValue) {
  for (const UnaryRow& row : kUnary) {
    for (DataType type : {DataType::Float, DataType::Double}) {
      Tensor x = Tensor::of(row.in, {std::ssize(row.in)}, type);
      Tensor y = run1({x}, [&](const Views& v) { return apply(opNamed(row.name), v); });
      EXPECT_EQ(y.dtype(), type);
      std::vector<double> got = y.toVector();
      for (size_t k = 0; k < row.in.size(); k++) {
        double tolerance = std::fabs(row.out[k]) * (type == DataType::Float ? 0x1p-23 : 0x1p-50);
        EXPECT_NEAR(got[k], row.out[k], tolerance) << row.name << " of " << row.in[k];
      }
    }
  }
}

TEST(Pointwise, EveryUnaryFloatingOpHasValues) {
  std::map<std::string, bool> seen;
  for (const UnaryRow& row : kUnary) {
    seen[row.name] = true;
  }
  for (const PointOpInfo& row : kPointOps) {
    if (row.arity == 1 && !row.givesBool && row.types != OpTypes::Bits) {
      EXPECT_TRUE(seen[std::string(row.name)]) << row.name;
    }
  }
}

struct Truth {
  PointOp op;
  std::vector<double> out;
};

TEST(Pointwise, QuestionsAboutFloatingNumbers) {
  const std::vector<double> in = {-kInf, -1, -0.0, 0, 2, kInf, kNan};
  const std::vector<Truth> rows = {
      {PointOp::IsFinite, {0, 1, 1, 1, 1, 0, 0}}, {PointOp::IsInf, {1, 0, 0, 0, 0, 1, 0}},
      {PointOp::IsNan, {0, 0, 0, 0, 0, 0, 1}},    {PointOp::IsNegInf, {1, 0, 0, 0, 0, 0, 0}},
      {PointOp::IsPosInf, {0, 0, 0, 0, 0, 1, 0}}, {PointOp::LogicalNot, {0, 0, 1, 1, 0, 0, 0}},
  };
  Tensor x = Tensor::of(in, {7});
  for (const Truth& row : rows) {
    Tensor y = run1({x}, [&](const Views& v) { return apply(row.op, v); });
    EXPECT_EQ(y.dtype(), DataType::Bool);
    EXPECT_EQ(y.toVector(), row.out) << info(row.op).name;
  }
  Tensor sign = run1({x}, [](const Views& v) { return signbit(v[0]); });
  EXPECT_EQ((std::vector<double>{1, 1, 1, 0, 0, 0}), [&] {
    auto t = sign.toVector();
    t.pop_back();
    return t;
  }());
}

TEST(Pointwise, Comparisons) {
  Tensor a = Tensor::of({1, 2, 3, kNan, 0}, {5});
  Tensor b = Tensor::of({2, 2, 2, 2, -0.0}, {5});
  const std::vector<Truth> rows = {
      {PointOp::Eq, {0, 1, 0, 0, 1}},         {PointOp::Ne, {1, 0, 1, 1, 0}},
      {PointOp::Gt, {0, 0, 1, 0, 0}},         {PointOp::Ge, {0, 1, 1, 0, 1}},
      {PointOp::Lt, {1, 0, 0, 0, 0}},         {PointOp::Le, {1, 1, 0, 0, 1}},
      {PointOp::LogicalAnd, {1, 1, 1, 1, 0}}, {PointOp::LogicalOr, {1, 1, 1, 1, 0}},
      {PointOp::LogicalXor, {0, 0, 0, 0, 0}},
  };
  for (const Truth& row : rows) {
    Tensor y = run1({a, b}, [&](const Views& v) { return apply(row.op, v); });
    EXPECT_EQ(y.dtype(), DataType::Bool);
    EXPECT_EQ(y.toVector(), row.out) << info(row.op).name;
  }
}

TEST(Pointwise, BinaryFloatingFunctions) {
  Tensor a = Tensor::of({7.5, -7.5, 7.5, -7.5, 2}, {5}, DataType::Double);
  Tensor b = Tensor::of({2, 2, -2, -2, 3}, {5}, DataType::Double);
  auto values = [&](PointOp op) { return run1({a, b}, [&](const Views& v) { return apply(op, v); }).toVector(); };
  EXPECT_EQ(values(PointOp::Add), (std::vector<double>{9.5, -5.5, 5.5, -9.5, 5}));
  EXPECT_EQ(values(PointOp::Sub), (std::vector<double>{5.5, -9.5, 9.5, -5.5, -1}));
  EXPECT_EQ(values(PointOp::Mul), (std::vector<double>{15, -15, -15, 15, 6}));
  EXPECT_EQ(values(PointOp::Div), (std::vector<double>{3.75, -3.75, -3.75, 3.75, 2.0 / 3}));
  EXPECT_EQ(values(PointOp::Fmod), (std::vector<double>{1.5, -1.5, 1.5, -1.5, 2}));
  EXPECT_EQ(values(PointOp::Remainder), (std::vector<double>{1.5, 0.5, -0.5, -1.5, 2}));
  EXPECT_EQ(values(PointOp::Maximum), (std::vector<double>{7.5, 2, 7.5, -2, 3}));
  EXPECT_EQ(values(PointOp::Minimum), (std::vector<double>{2, -7.5, -2, -7.5, 2}));
  EXPECT_EQ(values(PointOp::Pow), (std::vector<double>{56.25, 56.25, 1 / 56.25, 1 / 56.25, 8}));
  std::vector<double> angles = values(PointOp::Atan2);
  EXPECT_NEAR(angles[0], 1.3101939350475555, 1e-15);
  EXPECT_NEAR(angles[3], -1.8313987185422376, 1e-15);
}

TEST(Pointwise, NextAfterIsOfTheElementType) {
  Tensor one = Tensor::of({1, 1, 1}, {3});
  Tensor to = Tensor::of({2, 0, 1}, {3});
  Tensor y = run1({one, to}, [](const Views& v) { return nextafter(v[0], v[1]); });
  EXPECT_EQ(y.toVector(), (std::vector<double>{1 + 0x1p-23, 1 - 0x1p-24, 1}));
}

TEST(Pointwise, MaximumPropagatesNan) {
  Tensor a = Tensor::of({kNan, 1, -kInf}, {3});
  Tensor b = Tensor::of({1, kNan, kInf}, {3});
  for (PointOp op : {PointOp::Maximum, PointOp::Minimum}) {
    std::vector<double> y = run1({a, b}, [&](const Views& v) { return apply(op, v); }).toVector();
    EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
    EXPECT_EQ(y[2], op == PointOp::Maximum ? kInf : -kInf);
  }
}

TEST(Pointwise, Where) {
  Tensor c = Tensor::of({1, 0, 1}, {3}, DataType::Bool);
  Tensor a = Tensor::of({1, kNan, 3}, {3});
  Tensor y = run1({c, a}, [](const Views& v) { return where(v[0], v[1], -1.0); });
  EXPECT_EQ(y.toVector(), (std::vector<double>{1, -1, 3}));
  EXPECT_EQ(y.dtype(), DataType::Float);
}

TEST(Pointwise, FmaRoundsOnce) {
  double x = 1 + 0x1p-30;
  Tensor a = Tensor::of({x}, {1}, DataType::Double);
  Tensor y = run1({a}, [&](const Views& v) { return fma(v[0], v[0], -1.0 - 0x1p-29); });
  EXPECT_EQ(y.item(), 0x1p-60);
}

TEST(Pointwise, BuildersMakeTheOpsOfTheirNames) {
  Tensor a = Tensor::of({-kInf, -1.5, 2, kInf}, {4});
  Tensor b = Tensor::of({-1, -1.5, 1, 3}, {4});
  auto values = [&](const std::function<TensorView*(const Views&)>& f) { return run1({a, b}, f).toVector(); };
  EXPECT_EQ(values([](const Views& v) { return isneginf(v[0]); }), (std::vector<double>{1, 0, 0, 0}));
  EXPECT_EQ(values([](const Views& v) { return isposinf(v[0]); }), (std::vector<double>{0, 0, 0, 1}));
  EXPECT_EQ(values([](const Views& v) { return ge(v[0], v[1]); }), (std::vector<double>{0, 1, 1, 1}));
  EXPECT_EQ(values([](const Views& v) { return le(v[0], v[1]); }), (std::vector<double>{1, 1, 0, 0}));
  EXPECT_EQ(values([](const Views& v) { return logical_or(gt(v[0], 2.0), lt(v[1], -1.0)); }),
            (std::vector<double>{0, 1, 0, 1}));
  EXPECT_EQ(values([](const Views& v) { return frac(v[1]); }), (std::vector<double>{0, -0.5, 0, 0}));
}

TEST(Pointwise, Composed) {
  Tensor a = Tensor::of({1, 2, 3}, {3});
  Tensor b = Tensor::of({10, 20, 30}, {3});
  auto values = [&](const std::function<TensorView*(const Views&)>& f) { return run1({a, b}, f).toVector(); };
  EXPECT_EQ(values([](const Views& v) { return add_alpha(v[0], v[1], 2.0); }), (std::vector<double>{21, 42, 63}));
  EXPECT_EQ(values([](const Views& v) { return sub_alpha(v[0], v[1], 2.0); }), (std::vector<double>{-19, -38, -57}));
  EXPECT_EQ(values([](const Views& v) { return addcmul(v[0], v[0], v[1], 0.5); }), (std::vector<double>{6, 22, 48}));
  EXPECT_EQ(values([](const Views& v) { return lerp(v[0], v[1], 0.25); }), (std::vector<double>{3.25, 6.5, 9.75}));
  EXPECT_EQ(values([](const Views& v) { return lerp(v[0], v[1], 1.0); }), (std::vector<double>{10, 20, 30}));
  EXPECT_EQ(values([](const Views& v) { return lerp(v[0], v[1], true); }), (std::vector<double>{10, 20, 30}));
  EXPECT_EQ(values([](const Views& v) { return lerp(v[0], v[1], v[0]); }), (std::vector<double>{10, 38, 84}));
}

TEST(Pointwise, TrueDivisionOfIntegers) {
  Tensor a = Tensor::of({1, -7}, {2}, DataType::Int);
  Tensor y = run1({a}, [](const Views& v) { return truediv(v[0], 2); });
  EXPECT_EQ(y.dtype(), DataType::Float);
  EXPECT_EQ(y.toVector(), (std::vector<double>{0.5, -3.5}));
  Tensor z = run1({a}, [](const Views& v) { return truediv(14, v[0]); });
  EXPECT_EQ(z.toVector(), (std::vector<double>{14, -2}));
}

TEST(Pointwise, ScalarInputsAndScalarArithmetic) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeSymbolicTensor(1);
  Val* s = IrBuilder::create<Val>(DataType::Double);
  Val* n = IrBuilder::create<Val>(DataType::Int);
  fusion.addInput(x);
  fusion.addInput(s);
  fusion.addInput(n);
  fusion.addOutput(mul(x, add(exp(s), mul(n, 2))));
  EXPECT_EQ(verify(fusion), std::vector<std::string>{});
  std::vector<Tensor> out = interpret(fusion, {Tensor::of({1, 2}, {2}), 0.0, int64_t{3}});
  EXPECT_EQ(out.at(0).toVector(), (std::vector<double>{7, 14}));
}

TEST(Pointwise, RanksPadAndBroadcastDimsStretch) {
  Tensor a = counting({2, 1, 3});
  Tensor b = counting({4, 1});
  Tensor y = run1({a, b}, [](const Views& v) { return add(v[0], v[1]); });
  ASSERT_EQ(sizesOf(y), (std::vector<int64_t>{2, 4, 3}));
  for (int64_t i = 0; i < 2; i++) {
    for (int64_t j = 0; j < 4; j++) {
      for (int64_t k = 0; k < 3; k++) {
        EXPECT_EQ(y.at({i, j, k}), static_cast<double>(i * 3 + k + j));
      }
    }
  }
}

}  // namespace
}  // namespace meshfuse
