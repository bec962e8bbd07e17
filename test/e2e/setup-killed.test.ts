// `agent setup` killed at many instants and run again, on a Debian machine that systemd has booted: whatever the first run
// had done, the second one completes it, and says so only then.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { copyFileSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import * as v from "valibot";
import { buildAgent } from "../support/agent.ts";
import { makeLan, type Lan } from "../support/namespaces.ts";
import { describeMachine, makeMachine, type Machine } from "../support/nspawn.ts";
import { instants } from "../support/soak.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const setup = "agent setup --yes --public-name control.example.org --email ada@example.org --org-slug acme";
const Setup = v.object({ join_keys: v.array(v.string()) });

/** As before the first run, but with the user of the service. */
const reset = `
systemctl disable --now overlay-agent-auth.timer overlay-agent@acme overlay-agent-control overlay-agent 2>/dev/null
systemctl stop overlay-agent-auth.service
rm -rf /etc/overlay-agent /var/lib/overlay-agent /etc/systemd/system/overlay-agent* /etc/sysctl.d/60-overlay-agent*
systemctl daemon-reload
systemctl reset-failed
true`;

describeMachine("setup that is killed", () => {
  const directory = temporaryDirectory();
  let lan: Lan;
  let machine: Machine;

  beforeAll(async () => {
    const place = join(directory.path, "usr/local/bin/agent");
    mkdirSync(dirname(place), { recursive: true });
    copyFileSync(buildAgent(), place);
    lan = makeLan(["control"]);
    machine = makeMachine(lan.host("control").namespace, directory.path);
    await machine.boot();
    await machine.must(
      `echo "${lan.host("control").address} control.example.org" >> /etc/hosts && hostname control`,
    );
  }, 300_000);

  afterAll(async () => {
    await machine[Symbol.asyncDispose]();
    lan[Symbol.dispose]();
    directory[Symbol.dispose]();
  });

  test("is completed by the next run, at whatever instant it was killed", async () => {
    for (const ms of instants(60, 2500)) {
      await machine.must(reset);
      await machine.run(`timeout --signal=KILL ${ms / 1000} ${setup}`);
      const { stdout, stderr, status } = await machine.run(`${setup} --json`, 120_000);
      expect({ ms, status, stderr }).toMatchObject({ status: 0 });
      const { join_keys: keys } = v.parse(v.pipe(v.string(), v.parseJson(), Setup), stdout);
      expect({ ms, keys: keys.length }).toEqual({ ms, keys: 2 });
      const units = "overlay-agent-control overlay-agent@acme overlay-agent-auth.timer";
      for (const word of ["is-active", "is-enabled"])
        expect({ ms, [word]: (await machine.run(`systemctl ${word} ${units}`)).stdout }).toEqual({
          ms,
          [word]: `${word === "is-active" ? "active" : "enabled"}\n`.repeat(3),
        });
      expect((await machine.must("agent admin node list acme --json")).match(/"ip_address":/g)?.length).toBe(
        1,
      );
      expect(await machine.must("agent check-auth")).not.toContain("warning");
    }
    // Once a machine has joined, a run is for a change.
    expect(await machine.must(setup)).toContain("agent admin user password ada@example.org");
  }, 1_200_000);
});
