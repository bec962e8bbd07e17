// Text that other machines chose, in the output of commands that ask the daemon: no control character reaches a terminal.

import { expect, test } from "bun:test";
import { rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { unprintable } from "../../src/base/unprintable.ts";
import { Tunnels } from "../../src/node/health/tunnels.ts";
import { agentHere } from "../support/in-process.ts";
import { makeNodeWorld } from "../support/node.ts";

const hostile = "a\u001b]0;title\u0007\u009b31m\u202eb\ncc: running";

test("logs -f --json prints a line of the engine without control characters", async () => {
  await using world = await makeNodeWorld();
  await world.register({ mode: "desktop" });
  const path = join(dirname(world.root), "cmd.sock");
  // A daemon that sends one line of a log, and ends.
  const daemon = Bun.listen({
    unix: path,
    socket: {
      data(socket, bytes) {
        if (bytes.toString().includes('"version"')) return void socket.write('{"ok":true,"message":""}\n');
        const answer = { ok: true, message: "", lines: [] };
        const notice = { event: "log", team: "acme", line: hostile };
        socket.end(`${JSON.stringify(answer)}\n${JSON.stringify(notice)}\n`);
      },
    },
  });
  const places = ["--config-root", world.root, "--socket-path", path];
  const { status, out } = await agentHere(["logs", "acme", "--follow", "--json", ...places]);
  daemon.stop(true);
  rmSync(path, { force: true });
  expect(status).toBe(3);
  const [line = ""] = out.split("\n");
  expect(line.match(unprintable)).toBeNull();
  expect(JSON.parse(line)).toEqual({ team: "acme", line: hostile });
});

test("names and groups in a peer's certificate are one line without control characters", () => {
  const tunnels = new Tunnels();
  const details = { name: hostile, notAfter: "2027-02-18T12:00:00Z", groups: [hostile] };
  const cert = { details, fingerprint: "ab" };
  const tunnel = { localIndex: 1, messageCounter: 1, currentRemote: "", currentRelaysToMe: [], cert };
  tunnels.update([{ ...tunnel, vpnAddrs: ["10.77.0.2"] }], { own: [], now: 0, probesTo: () => 0 });
  const [seen] = tunnels.all;
  const clean = "a ]0;title 31m b cc: running";
  expect([seen?.name, seen?.certificate?.groups]).toEqual([clean, [clean]]);
});
