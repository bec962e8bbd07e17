// The AppError that a call throws. Any other error, or none, fails the test.

import { AppError } from "../../src/base/errors.ts";

export function thrown(work: () => unknown): AppError {
  try {
    work();
  } catch (error) {
    if (error instanceof AppError) return error;
    throw error;
  }
  throw new Error("Expected an AppError, nothing was thrown");
}

export async function rejection(work: Promise<unknown>): Promise<AppError> {
  try {
    await work;
  } catch (error) {
    if (error instanceof AppError) return error;
    throw error;
  }
  throw new Error("Expected an AppError, the promise was fulfilled");
}
