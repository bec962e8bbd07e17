// One request to an engine: a line of JSON each way on a Unix socket or a named pipe (control-socket.ts).

import * as v from "valibot";
import { boundedText, jsonText } from "../../base/text.ts";
import { defer } from "../../base/defer.ts";
import { AppError } from "../../base/errors.ts";
import { systemErrorCode } from "../../base/system-errors.ts";
import { given } from "../../base/given.ts";
import type { System } from "../../base/system.ts";
import { within } from "../../base/within.ts";

const EngineResponse = v.object({
  version: v.number(),
  result: v.optional(v.unknown()),
  error: v.optional(boundedText(1_000_000)),
});

export type Answer = v.InferOutput<typeof EngineResponse>;

/** Bytes. 10,000 tunnels have about 15 MB. */
const longestAnswer = 32 * 1024 * 1024;
const lineEnd = 10;

/**
 * Whether nothing listens on the socket, by the error of `exchange`: then the error has no cause, because there can be no socket, or
 * one that says so. An engine that listens but does not answer hangs.
 */
export function isAbsent({ code, cause }: AppError): boolean {
  return code === "engine_unreachable" && (cause === undefined || isNothingThere(cause));
}

const isNothingThere = (error: unknown) => ["ENOENT", "ECONNREFUSED"].includes(systemErrorCode(error) ?? "");

/**
 * One request on one connection: the engine closes it after the answer. `socketPath`: undefined if the path would be too long for a
 * socket. Throws engine_unreachable, and engine_failed for an answer that is not valid.
 */
export async function exchange(
  socketPath: string | undefined,
  request: object,
  withinMs: number,
  system: Pick<System, "sleep">,
): Promise<Answer> {
  if (socketPath === undefined) throw unreachableError("", "is not in use: its path would be too long");
  const connection = openConnection(socketPath, `${JSON.stringify(request)}\n`);
  using _ = defer(() => connection.end());
  const line = await within(system, withinMs, connection.line, "late" as const);
  if (line === "late")
    throw unreachableError(socketPath, `did not answer within ${withinMs / 1000} s`, new Error("late"));
  const parsed = v.safeParse(jsonText(EngineResponse), line.text);
  if (parsed.success) return parsed.output;
  throw new AppError(
    "engine_failed",
    `The overlay engine's control socket ${socketPath} sent no valid answer`,
  );
}

/**
 * Sends a line and reads one. `line` is an object, so that its text cannot be taken for the word of a time-out. `end` may be called
 * at any time, also before the connection exists.
 */
function openConnection(
  socketPath: string,
  request: string,
): { line: Promise<{ text: string }>; end(): void } {
  const line = Promise.withResolvers<{ text: string }>();
  const chunks: Buffer[] = [];
  let size = 0;
  let unsent: Uint8Array = Buffer.from(request);
  // The number of bytes that were taken is negative if the socket is closed.
  const send = (socket: { write(bytes: Uint8Array): number }) => {
    unsent = unsent.subarray(Math.max(0, socket.write(unsent)));
  };
  const state = { ended: false };
  const finish = () => line.resolve({ text: Buffer.concat(chunks).toString("utf8") });
  const opening = Bun.connect({
    unix: socketPath,
    socket: {
      open: send,
      drain: send,
      data(_, bytes) {
        size += bytes.byteLength;
        if (size > longestAnswer)
          return line.reject(
            new AppError("engine_failed", `The overlay engine's answer exceeds ${longestAnswer} bytes`),
          );
        // Bun reuses the buffer.
        chunks.push(Buffer.from(bytes));
        if (bytes.at(-1) === lineEnd) finish();
      },
      close: finish,
      error: (_, error) => line.reject(unreachableError(socketPath, "broke the connection", error)),
    },
  });
  opening.then(
    (socket) => state.ended && socket.terminate(),
    (error: unknown) => {
      const why = isNothingThere(error) ? "does not exist, or nothing listens" : "is out of reach";
      line.reject(unreachableError(socketPath, why, error));
    },
  );
  return {
    line: line.promise,
    end() {
      state.ended = true;
      void opening.then((socket) => socket.terminate()).catch(() => undefined);
    },
  };
}

function unreachableError(socketPath: string, why: string, cause?: unknown): AppError {
  return new AppError("engine_unreachable", `The overlay engine's control socket ${socketPath} ${why}`, {
    ...given({ cause }),
    hint: "The engine serves it from version 1.12 on. Restart the organization if its engine is newer.",
  });
}
