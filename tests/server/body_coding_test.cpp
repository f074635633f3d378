// Bodies as bytes, honest and hostile.
#include "server/wire/body_coding.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

namespace okibi::server {
namespace {

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

std::string gzip(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

TEST(DecodeBody, ReturnsWhatWasEncoded) {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += static_cast<char>('a' + i % 23 * i % 7);
  EXPECT_EQ(*decode_body(zstd(text), "zstd"), text);
  EXPECT_EQ(*decode_body(gzip(text), "GZIP"), text);
  EXPECT_EQ(*decode_body(text, ""), text);
  EXPECT_EQ(*decode_body(text, "identity"), text);
  EXPECT_EQ(*decode_body(zstd("a") + zstd("b"), "zstd"), "ab");
}

TEST(DecodeBody, RefusesOtherEncodings) {
  for (const char* coding : {"br", "deflate", "zstd, gzip", "compress"}) {
    EXPECT_EQ(decode_body("x", coding).status().code(), StatusCode::kUnsupported) << coding;
  }
}

TEST(DecodeBody, StopsAtTheCapWhateverTheFrameClaims) {
  const std::string zeros(3 << 20, '\0');
  for (const auto& [coding, body] : {std::pair<std::string, std::string>{"zstd", zstd(zeros)},
                                     {"gzip", gzip(zeros)},
                                     {"", zeros}}) {
    EXPECT_EQ(decode_body(body, coding, 1 << 20).status().code(), StatusCode::kResourceExhausted);
    EXPECT_TRUE(decode_body(body, coding, 3 << 20).ok()) << coding;
  }
}

TEST(DecodeBody, RefusesEveryCutAndDamagedBody) {
  const std::string text = "{\"state\": \"a state that is long enough for several blocks\"}";
  for (const auto& [coding, body] :
       {std::pair<std::string, std::string>{"zstd", zstd(text)}, {"gzip", gzip(text)}}) {
    for (size_t n = 0; n < body.size(); ++n) {
      EXPECT_EQ(decode_body(body.substr(0, n), coding).status().code(), StatusCode::kBadData)
          << coding << " " << n;
    }
    EXPECT_FALSE(decode_body(body + "x", coding).ok()) << coding;
  }
}

TEST(DecodeBody, RefusesWindowsThatNoClientAsksFor) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 27);
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
  std::string out(1 << 16, '\0');
  ZSTD_inBuffer in{"abc", 3, 0};
  ZSTD_outBuffer to{out.data(), out.size(), 0};
  ZSTD_compressStream2(context, &to, &in, ZSTD_e_continue);
  ZSTD_compressStream2(context, &to, &in, ZSTD_e_end);
  ZSTD_freeCCtx(context);
  EXPECT_FALSE(decode_body({out.data(), to.pos}, "zstd").ok());
}

TEST(MediaType, IsReadWithItsBoundary) {
  EXPECT_EQ(read_media_type("Application/JSON; charset=utf-8").name, "application/json");
  const MediaType type = read_media_type("multipart/form-data; x=1; boundary=\"a b\\\"c\"");
  EXPECT_EQ(type.name, "multipart/form-data");
  EXPECT_EQ(type.boundary, "a b\"c");
  EXPECT_EQ(read_media_type("multipart/form-data; boundary=abc; q=1").boundary, "abc");
  EXPECT_EQ(read_media_type("multipart/form-data").boundary, "");
}

constexpr char kForm[] =
    "preamble\r\n--B\r\nContent-Disposition: form-data; name=\"request\"\r\n"
    "Content-Type: application/json; charset=utf-8\r\n\r\n{}\r\n--B\r\n"
    "content-disposition: form-data; name=\"asset-0\"; filename=\"f.png\"\r\n\r\n"
    "bytes\r\n--Bx\r\nmore\r\n--B\r\n"
    "Content-Disposition: form-data; name=empty\r\n\r\n\r\n--B--\r\nepilogue";

TEST(Multipart, GivesPartsByteForByte) {
  const std::string form = kForm;
  // "--Bx" begins like a boundary and is refused, as a reader that takes it for bytes and one that
  // takes it for a boundary would see different parts.
  EXPECT_FALSE(read_multipart(form, "B").ok());
  std::string plain = form;
  plain.replace(plain.find("--Bx"), 4, "--Cx");
  const auto parts = read_multipart(plain, "B");
  ASSERT_TRUE(parts.ok()) << parts.status().message();
  ASSERT_EQ(parts->size(), 3u);
  EXPECT_EQ((*parts)[0].name, "request");
  EXPECT_EQ((*parts)[0].content_type, "application/json");
  EXPECT_EQ((*parts)[0].body, "{}");
  EXPECT_EQ((*parts)[1].filename, "f.png");
  EXPECT_EQ((*parts)[1].body, "bytes\r\n--Cx\r\nmore");
  EXPECT_EQ((*parts)[2].name, "empty");
  EXPECT_EQ((*parts)[2].body, "");
}

TEST(Multipart, RefusesEveryCut) {
  std::string form = kForm;
  form.replace(form.find("--Bx"), 4, "--Cx");
  const size_t end = form.find("--B--") + 5;
  for (size_t n = 0; n < end; ++n) {
    EXPECT_FALSE(read_multipart(form.substr(0, n), "B").ok()) << n;
  }
  EXPECT_TRUE(read_multipart(form.substr(0, end), "B").ok());
}

TEST(Multipart, BoundsItsParts) {
  std::string form;
  for (size_t i = 0; i < kMaxParts + 1; ++i) {
    form += "--B\r\nContent-Disposition: form-data; name=a\r\n\r\nx\r\n";
  }
  EXPECT_FALSE(read_multipart(form + "--B--", "B").ok());
  EXPECT_FALSE(
      read_multipart("--B\r\nX: " + std::string(10'000, 'x') + "\r\n\r\n\r\n--B--", "B").ok());
  EXPECT_FALSE(read_multipart("--B\r\n\r\nno name\r\n--B--", "B").ok());
  EXPECT_FALSE(read_multipart("----", "").ok());
}

TEST(Base64, IsStrict) {
  EXPECT_EQ(*decode_base64(""), "");
  EXPECT_EQ(*decode_base64("Zg=="), "f");
  EXPECT_EQ(*decode_base64("Zm8="), "fo");
  EXPECT_EQ(*decode_base64("Zm9v"), "foo");
  EXPECT_EQ(*decode_base64("/+8A"), std::string("\xff\xef\0", 3));
  for (const char* wrong : {"Zg", "Zg=", "Zm9v\n", "Zh==", "Zm9=", "Z===", "====", "Zm-v", "=Zm9",
                            "Zg==Zg==", "Zm 9v"}) {
    EXPECT_FALSE(decode_base64(wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace okibi::server
