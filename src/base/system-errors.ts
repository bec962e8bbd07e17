// Errors of the system, of TLS and of the runtime as sentences for users. Their own messages are for programmers ("Was there a
// typo in the url or port?").

/** The code of a system error (`ENOENT`, `EACCES`), or undefined. */
export function systemErrorCode(error: unknown): string | undefined {
  if (!(error instanceof Error) || !("code" in error)) return undefined;
  return typeof error.code === "string" ? error.code : undefined;
}

const strangeAuthority = "its certificate comes from an unknown authority";
const closedEarly = "the connection was closed before the answer was complete";

const reasons = new Map(
  Object.entries({
    ENOENT: "no such file or directory",
    ENOTDIR: "a part of the path is not a directory",
    EISDIR: "it is a directory",
    EEXIST: "it already exists",
    ENOTEMPTY: "the directory is not empty",
    EACCES: "permission denied",
    EPERM: "permission denied",
    EROFS: "the file system is read-only",
    ENOSPC: "no space left on the disk",
    EDQUOT: "the disk quota is used up",
    ELOOP: "too many symbolic links",
    ENAMETOOLONG: "the name is too long",
    EMFILE: "too many open files",
    ENFILE: "too many open files",
    EBUSY: "it is in use",
    EXDEV: "it is on another file system",
    EFBIG: "the file is too large",
    EINVAL: "the system does not accept a value",
    ENOTSUP: "the system does not support it",
    ENOTSOCK: "it is not a socket",
    // Bun's rmSync reports a refusal so.
    EFAULT: "the system refused it",
    EIO: "the device reports an input/output error",
    EADDRINUSE: "the address and port are already in use",
    EADDRNOTAVAIL: "this machine does not have the address",
    ECONNREFUSED: "the connection was refused",
    ECONNRESET: closedEarly,
    EPIPE: closedEarly,
    ETIMEDOUT: "no answer in time",
    ENOTFOUND: "the host name was not found",
    EAI_AGAIN: "no name server answers",
    ENETUNREACH: "the network is unreachable",
    EHOSTUNREACH: "the host is unreachable",
    FailedToOpenSocket: "the connection could not be opened",
    Malformed_HTTP_Response: "the answer is not valid HTTP",
    EPROTO: "the TLS handshake failed",
    ERR_SSL_WRONG_VERSION_NUMBER: "the TLS handshake failed",
    ERR_INVALID_URL: "the URL is not valid",
    ERR_TLS_CERT_ALTNAME_INVALID: "its certificate is for another host name",
    CERT_HAS_EXPIRED: "its certificate has expired",
    CERT_NOT_YET_VALID: "its certificate is not valid yet: check the clock",
    DEPTH_ZERO_SELF_SIGNED_CERT: strangeAuthority,
    SELF_SIGNED_CERT_IN_CHAIN: strangeAuthority,
    UNABLE_TO_GET_ISSUER_CERT: strangeAuthority,
    UNABLE_TO_GET_ISSUER_CERT_LOCALLY: strangeAuthority,
    UNABLE_TO_VERIFY_LEAF_SIGNATURE: strangeAuthority,
  }),
);

/** The sentence for a code of the system or the runtime, without the error's own message. */
export const reasonOfCode = (code: string): string | undefined => reasons.get(code);

/** The reason in a sentence. Names the path of the error, unless `action` does. */
export function systemReason(error: Error, action: string): string {
  const code = systemErrorCode(error) ?? "";
  const reason = reasons.get(code);
  if (reason !== undefined) {
    const path = "path" in error && typeof error.path === "string" ? error.path : "";
    // For fetch(), `path` is the URL, which the caller names.
    const isNamed = path === "" || path.includes("://") || action.includes(path);
    return isNamed ? reason : `${reason} (${path})`;
  }
  if (error.name === "TimeoutError") return "no answer in time";
  // DecompressionStream gives no code.
  if (/^(inflate failed|unexpected end of file)$/.test(error.message))
    return "the answer is not compressed as it says";
  // Every other failure of the runtime's fetch() ends with advice to its caller.
  const isAdvice = /\bfetch\(\)|\btypo in the url|\bable to access the url/.test(error.message);
  return isAdvice ? `the connection failed${code === "" ? "" : ` (${code})`}` : error.message;
}

/** Whether the certificate of a TLS server comes from an authority that is not trusted here. */
export function isStrangeAuthority(error: unknown): boolean {
  return reasons.get(systemErrorCode(error) ?? "") === strangeAuthority;
}

/** Whether no connection was made, so that nothing was sent. */
export function isUnsent(error: unknown): boolean {
  return ["ECONNREFUSED", "FailedToOpenSocket", "ENOTFOUND", "EAI_AGAIN"].includes(
    systemErrorCode(error) ?? "",
  );
}
