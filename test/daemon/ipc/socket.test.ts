// The daemon's socket as a file, and clients that find no daemon.

import { describe, expect, test } from "bun:test";
import { statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { connectDaemon } from "../../../src/daemon/ipc/client.ts";
import { isAnswered } from "../../../src/daemon/ipc/transport.ts";
import { longestSocketPath } from "../../../src/platform/file-system.ts";
import { failureOf, ownGroup, system, useIpc } from "../../support/ipc.ts";

const { place, serve } = useIpc();

describe("the socket", () => {
  const mode = (of: string) => (statSync(of).mode & 0o777).toString(8);

  test("belongs to root, or to the group if there is one; its directory is closed to others", async () => {
    const first = await serve();
    expect(mode(place.path)).toBe("600");
    expect(mode(join(place.directory, "run"))).toBe("750");
    await first.stop();
    place.path = join(place.directory, "run2", "cmd.sock");
    await serve({ access: { groupId: ownGroup } });
    expect(mode(place.path)).toBe("660");
    expect(statSync(place.path).gid).toBe(ownGroup);
  });

  test("of a running daemon is kept, that of a killed daemon is replaced", async () => {
    const script = `
      import { openLibc } from ${JSON.stringify(join(import.meta.dir, "../../../src/platform/libc.ts"))};
      import { serveIpc } from ${JSON.stringify(join(import.meta.dir, "../../../src/daemon/ipc/server.ts"))};
      const log = { debug() {}, info() {}, warn() {}, error() {} };
      const [path = ""] = process.argv.slice(2);
      await serveIpc({ address: { kind: "socket", path }, access: { groupId: undefined }, libc: openLibc(), system: { sleep: Bun.sleep }, log,
        handle: async () => ({ ok: true, message: "first" }) });
      process.stdout.write("up");
    `;
    const file = join(place.directory, "daemon.ts");
    writeFileSync(file, script);
    const first = Bun.spawn([process.execPath, file, place.path], { stdout: "pipe", stderr: "inherit" });
    await first.stdout.getReader().read();
    expect((await failureOf(serve())).code).toBe("busy");
    first.kill("SIGKILL");
    await first.exited;
    await serve({ handle: async () => ({ ok: true, message: "second" }) });
    const client = await connectDaemon({ kind: "socket", path: place.path }, system, { patient: false });
    expect((await client.request({ action: "x" })).message).toBe("second");
    client.close();
  });

  test("never replaces a file that is not a socket, and rejects a path that is too long", async () => {
    place.path = join(place.directory, "file");
    writeFileSync(place.path, "precious");
    expect((await failureOf(serve())).code).toBe("bad_configuration");
    expect(await Bun.file(place.path).text()).toBe("precious");
    place.path = join(place.directory, "x".repeat(108));
    expect((await failureOf(serve())).code).toBe("bad_configuration");
  });
});

test("a path of a socket has 103 bytes on macOS, whose kernel has room for 104 with the final zero", () => {
  expect([longestSocketPath("darwin"), longestSocketPath("linux")]).toEqual([103, 107]);
});

test("a socket that cannot be given to its group does not listen", async () => {
  place.path = join(place.directory, "cmd.sock");
  const noGroup = 2 ** 40;
  expect((await failureOf(serve({ access: { groupId: noGroup } }))).message).toContain("Cannot listen on");
  expect(await isAnswered(place.path)).toBe(false);
});

describe("a client without a daemon", () => {
  test("fails at once, or after a short wait", async () => {
    const address = { kind: "socket", path: place.path } as const;
    expect((await failureOf(connectDaemon(address, system, { patient: false }))).code).toBe(
      "daemon_unreachable",
    );
    const waits: number[] = [];
    const sleep = async (ms: number) => void waits.push(ms);
    expect((await failureOf(connectDaemon(address, { sleep }, { patient: true }))).exitStatus).toBe(3);
    expect(waits.reduce((sum, ms) => sum + ms, 0)).toBe(2000);
  });

  test("waits for one that is starting", async () => {
    const client = connectDaemon({ kind: "socket", path: place.path }, system, { patient: true });
    await Bun.sleep(60);
    await serve();
    expect((await (await client).request({ action: "late" })).message).toBe("late");
    (await client).close();
  });
});
