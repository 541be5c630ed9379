#pragma once
// Spin boxes into which any number can be typed: one out of range becomes the nearest that is
// allowed, and a sentence says so. Qt's own refuse the digit that would lead out of the range, in
// silence: 5000 typed where 4096 is the most leaves 500.

#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include <QDoubleSpinBox>
#include <QLineEdit>
#include <QLocale>
#include <QSpinBox>
#include <QString>
#include <QVariant>

namespace longhand::ui {

/// The texts are English, so are the numbers (as in style/format.cpp).
QLocale numberLocale();
/// "5,000 is too much: 4,096 is the most."
QString correctionText(double typed, double least, double most, int decimals);
/// Of a number as it is typed, with separators of thousands; nothing for any other text.
std::optional<double> typedNumber(QString text, bool isWhole);

/// `Box` is QSpinBox or QDoubleSpinBox.
template <typename Box>
class NumberField final : public Box {
 public:
  using Number = decltype(std::declval<const Box&>().value());
  static constexpr bool kIsWhole = std::is_integral_v<Number>;

  NumberField() {
    this->setLocale(numberLocale());
    this->setGroupSeparatorShown(true);
    QObject::connect(this->lineEdit(), &QLineEdit::textEdited, this, [this](const QString& text) {
      typed_ = numberIn(text);
      say();
    });
    QObject::connect(this, &Box::valueChanged, this, [this] {
      if (correction().isEmpty()) typed_.reset();
      say();
    });
  }

  /// Called with the sentence about the number that was typed; with none once that is over.
  void onCorrection(std::function<void(const QString&)> tell) { tell_ = std::move(tell); }
  /// Rounded to what is shown, as a typed number is: 0.55 and 0.05 are more than 0.6.
  void stepBy(int steps) override {
    Box::stepBy(steps);
    this->setValue(this->value());
  }
  /// As if it was typed.
  void enter(const QVariant& number) {
    typed_ = number.toDouble();
    this->setValue(number.value<Number>());
    say();
  }

 protected:
  QValidator::State validate(QString& text, int& position) const override {
    return isTooMuch(numberIn(text)) ? QValidator::Acceptable : Box::validate(text, position);
  }
  Number valueFromText(const QString& text) const override {
    return isTooMuch(numberIn(text)) ? this->maximum() : Box::valueFromText(text);
  }
  void fixup(QString& text) const override {
    if (isTooLittle(numberIn(text))) {
      text = this->textFromValue(this->minimum()) + this->suffix();
    } else {
      Box::fixup(text);
    }
  }

 private:
  std::optional<double> numberIn(QString text) const {
    if (text.endsWith(this->suffix())) text.chop(this->suffix().size());
    return typedNumber(std::move(text), kIsWhole);
  }
  bool isTooMuch(std::optional<double> number) const {
    return number && *number > static_cast<double>(this->maximum());
  }
  bool isTooLittle(std::optional<double> number) const {
    return number && *number < static_cast<double>(this->minimum());
  }
  /// What became of the number that was typed, if it is out of range.
  QString correction() const {
    const bool isCorrected = (isTooMuch(typed_) && this->value() >= this->maximum()) ||
                             (isTooLittle(typed_) && this->value() <= this->minimum());
    if (!isCorrected) return {};
    int decimals = 0;
    if constexpr (!kIsWhole) decimals = this->decimals();
    return correctionText(*typed_, this->minimum(), this->maximum(), decimals);
  }
  void say() const {
    if (tell_) tell_(correction());
  }

  std::function<void(const QString&)> tell_;
  std::optional<double> typed_;  // last, while the value is what became of it
};

}  // namespace longhand::ui
