import { expect, test } from "bun:test";
import { realSystem } from "../../../src/base/system.ts";
import { exitUser } from "../../../src/node/edge/exit-parts.ts";
import { temporaryDirectory } from "../../support/temporary.ts";

test("an exit whose rules stay when its part is over is logged as an error", async () => {
  using directory = temporaryDirectory();
  const errors: unknown[] = [];
  const failed = { status: 1, stdout: "", stderr: "Operation not permitted", timedOut: false };
  const quiet = (): void => undefined;
  const part = await exitUser.start({
    slug: "acme",
    directory: directory.path,
    open: () => {
      throw new Error("its files are not needed");
    },
    control: {
      process: () => Promise.resolve(undefined),
      reload: () => Promise.resolve(),
      restart: () => Promise.resolve(),
    },
    command: "agent",
    log: { debug: quiet, info: quiet, warn: quiet, error: (...of: unknown[]) => errors.push(of) },
    system: { ...realSystem(), platform: "linux", run: () => Promise.resolve(failed) },
  });
  await part.stop({ isOver: true });
  const reason: unknown = expect.stringContaining("not permitted");
  expect(errors).toEqual([["Cannot leave the exit", { team: "acme", reason }]]);
});
