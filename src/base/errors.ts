// The error type of the product, and the table that gives each code its exit status and HTTP status. Codes are a
// contract (--json, HTTP bodies, IPC answers); messages are for readers and may change.

import { systemErrorCode, systemReason } from "./system-errors.ts";

/** By code: the exit status of commands, and the HTTP status. */
export const errorTable = {
  // command line and node
  failed: [1, 500],
  usage: [2, 400],
  daemon_unreachable: [3, 503],
  not_registered: [4, 404],
  credentials_missing: [4, 401],
  os_permission: [5, 403],
  control_plane_unreachable: [6, 502],
  access_revoked: [7, 403],
  bad_configuration: [78, 400],
  foreign_files: [78, 400],
  // The status that shells report for a program that SIGINT ended.
  interrupted: [130, 503],
  busy: [1, 409],
  engine_missing: [1, 500],
  engine_failed: [1, 500],
  engine_unreachable: [1, 503],
  release_unsigned: [1, 500],
  backup_unauthenticated: [1, 400],
  untrusted_answer: [6, 502],
  disk_full: [1, 503],
  // HTTP API
  not_authenticated: [5, 401],
  token_not_valid: [5, 401],
  invalid_credentials: [5, 401],
  second_factor_required: [5, 401],
  invalid_code: [5, 401],
  second_factor_missing: [5, 403],
  step_up_required: [5, 403],
  permission_denied: [5, 403],
  registration_refused: [5, 403],
  node_token_scope: [5, 403],
  token_scope: [5, 403],
  cross_site: [5, 403],
  sign_in_expired: [5, 403],
  sign_in_waiting: [6, 400],
  sign_in_refused: [5, 403],
  enrollment_ended: [5, 403],
  address_in_use: [5, 409],
  provider_unavailable: [6, 502],
  tls_required: [1, 403],
  node_revoked: [7, 403],
  not_found: [1, 404],
  method_not_allowed: [1, 405],
  validation_failed: [1, 400],
  bad_request: [1, 400],
  name_taken: [1, 409],
  name_held: [1, 409],
  address_taken: [1, 409],
  network_full: [1, 409],
  too_many_certificates: [1, 409],
  organization_full: [1, 409],
  too_many_rules: [1, 409],
  policy_test_failed: [1, 409],
  policy_by_file: [1, 409],
  policy_unconfirmed: [1, 409],
  policy_changed: [1, 409],
  too_many_waiting: [1, 409],
  domain_unverified: [1, 409],
  approval_pending: [6, 409],
  conflict: [1, 409],
  owner_unconfirmed: [1, 409],
  request_timeout: [6, 408],
  payload_too_large: [1, 413],
  unsupported_media_type: [1, 415],
  misdirected: [1, 421],
  throttled: [6, 429],
  internal: [1, 500],
  storage_unavailable: [6, 503],
  clock_doubted: [6, 503],
  // IPC
  unknown_action: [1, 400],
  unknown_team: [1, 404],
  collision: [1, 409],
} as const satisfies Record<string, readonly [exitStatus: number, httpStatus: number]>;

export type ErrorCode = keyof typeof errorTable;

type ErrorDetails = {
  cause?: unknown;
  /** What to do next, in one sentence. */
  hint?: string;
  /** Field → sentences, for validation failures. */
  errors?: Record<string, string[]>;
  /** Seconds to wait before the next try (429, 503). */
  retryAfter?: number;
  /** How a second factor can be proven, for `second_factor_required` and `step_up_required`. */
  methods?: readonly string[];
  /** The signed order that comes with `node_revoked`. */
  order?: string;
};

/** The message says which action failed, the value found and the value expected. It never holds a secret. */
export class AppError extends Error {
  readonly code: ErrorCode;
  readonly details: ErrorDetails;

  constructor(code: ErrorCode, message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = "AppError";
    this.code = code;
    this.details = details;
  }

  get exitStatus(): number {
    const [exitStatus] = errorTable[this.code];
    return exitStatus;
  }

  get httpStatus(): number {
    const [, httpStatus] = errorTable[this.code];
    return httpStatus;
  }
}

/** A field of a request that is refused. The sentence is also that of the whole error. */
export function invalidField(
  field: string,
  sentence: string,
  details: Pick<ErrorDetails, "hint"> = {},
): AppError {
  return new AppError("validation_failed", sentence, { errors: { [field]: [sentence] }, ...details });
}

/** Whether it is an AppError with one of these codes. */
export function hasCode(error: unknown, ...codes: ErrorCode[]): error is AppError {
  return error instanceof AppError && codes.includes(error.code);
}

export function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(errorTable, code);
}

/** A system error during `action` ("write /etc/x") as a sentence with its exit status. */
export function fromSystemError(action: string, error: unknown): AppError {
  if (error instanceof AppError) return error;
  switch (systemErrorCode(error)) {
    case "EACCES":
    case "EPERM":
      return new AppError("os_permission", `Cannot ${action}: permission denied`, {
        cause: error,
        hint: "Run the command as root (sudo).",
      });
    case "EROFS":
      return new AppError("os_permission", `Cannot ${action}: the file system is read-only`, {
        cause: error,
        hint: "Make it writable (mount -o remount,rw), and run the command again.",
      });
    case "ENOSPC":
    case "EDQUOT":
      return new AppError("disk_full", `Cannot ${action}: no space left on the disk`, {
        cause: error,
        hint: "Free some space and run the command again.",
      });
    default:
      return new AppError("failed", `Cannot ${action}: ${reasonOf(error, action)}`, { cause: error });
  }
}

/** The reason of a failure as text. Names the path of a system error. */
export function messageOf(error: unknown): string {
  return reasonOf(error, "");
}

/** For a log line about an organization: the failure as its reason. */
export const because = (slug: string, error: unknown) => ({ team: slug, reason: messageOf(error) });

/** The reason of a failure with what to do next. */
export function messageWithHint(error: unknown): string {
  const hint = error instanceof AppError ? error.details.hint : undefined;
  return hint === undefined ? messageOf(error) : `${messageOf(error)}. ${hint}`;
}

/** The reason of a failure; without the path if `action` names it. */
function reasonOf(error: unknown, action: string): string {
  if (!(error instanceof Error)) return String(error);
  return error instanceof AppError ? error.message : systemReason(error, action);
}
