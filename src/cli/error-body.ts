// A failure as an object of --json: bounded, on one line, without secrets.

import { given } from "../base/given.ts";
import type { AppError, ErrorCode } from "../base/errors.ts";
import { clean, cleanErrors } from "../base/log.ts";

export type ErrorBody = {
  code: ErrorCode;
  message: string;
  /** What to do next. */
  hint?: string;
  /** Field → sentences, for validation failures. */
  errors?: Record<string, string[]>;
};

/** The error of a command as `--json` prints it, safe for a terminal. */
export function errorBody({ code, message, details: { hint, errors } }: AppError): ErrorBody {
  return {
    code,
    message: clean(message),
    ...given({ hint: hint && clean(hint), errors: errors && cleanErrors(errors) }),
  };
}
