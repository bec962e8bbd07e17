import { expect, test } from "bun:test";
import { presentExitState, writeExitState } from "../../../../src/node/files/granted/exit-state.ts";
import { writePermissions } from "../../../../src/node/files/permissions.ts";
import { temporaryDirectory } from "../../../support/temporary.ts";

test("without the tunnel's interface packets are dropped with --strict, and go beside the exit otherwise", () => {
  using directory = temporaryDirectory();
  const written = { exit: "10.77.0.9", name: "gate1", state: "used", since: 0 } as const;
  writeExitState(directory.path, written);
  for (const [strict, state] of [
    [true, "blocked"],
    [false, "beside"],
  ] as const) {
    writePermissions(directory.path, { exit: { use: "gate1", strict, lan: true } });
    expect(presentExitState(directory.path)).toEqual({ ...written, state });
  }
});
