// The digest that all parts of the product use.

/** SHA-256 in lower-case hex, of a text as UTF-8, or of bytes. */
export const sha256Hex = (content: string | Uint8Array | ArrayBuffer): string =>
  Bun.SHA256.hash(content, "hex");
