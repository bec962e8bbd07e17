// `agent self-update` of a machine that has all: control plane, daemon, and a node in server mode. Whatever interrupts it,
// within a minute all run one version that works, and a further update completes it.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { copyFileSync, mkdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import * as v from "valibot";
import { hostTarget } from "../../build.ts";
import { makeLan, type Lan } from "../support/namespaces.ts";
import { describeMachine, makeMachine, type Machine } from "../support/nspawn.ts";
import { buildVersion, makeRelease, releaseKey, standIn } from "../support/releases.ts";
import { inFull, instants } from "../support/soak.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const setup =
  "agent setup --yes --public-name control.example.org --email ada@example.org --org-slug acme --json";
const Setup = v.pipe(v.string(), v.parseJson(), v.object({ join_keys: v.array(v.string()) }));
const Key = v.pipe(v.string(), v.parseJson(), v.object({ join_key: v.string() }));

const update = (name: string) => `agent self-update --json --release-url /srv/${name}`;
const versionLine = `agent version --no-check --json | grep -o '"version":"[^"]*"' | cut -d '"' -f 4`;

/** Both services run the installed program, answer, and no guard is at work. */
const isSettled = `
for unit in overlay-agent overlay-agent-control; do
  [ "$(systemctl is-active $unit)" = active ] || { echo "$unit is not active"; exit 1; }
  pid=$(systemctl show --property=MainPID --value $unit)
  [ "$(stat -Lc %i /proc/$pid/exe)" = "$(stat -c %i /usr/local/bin/agent)" ] || { echo "$unit runs another program"; exit 1; }
done
[ "$(stat -c %U /proc/[0-9]* 2>/dev/null | grep -c "^overlay-agent-control$")" = 1 ] || { echo "a second control plane"; exit 1; }
curl -fsSk https://127.0.0.1/readyz >/dev/null || exit 1
systemctl is-active --quiet overlay-agent@acme || { echo "no engine"; exit 1; }
agent status --json | grep -q "\\"version\\":\\"$(${versionLine})\\"" || { echo "another daemon"; exit 1; }
for is in active enabled; do
  ! systemctl is-$is --quiet overlay-agent-guard || { echo "a guard is $is"; journalctl --no-pager -n 20 -u overlay-agent-guard; exit 1; }
done`;
/** A kill between the guard's unit and its start leaves the unit, which does nothing; the next update removes it. */
const isTidy = `! ls /etc/systemd/system | grep guard`;

describeMachine("an update of a machine that has all", () => {
  const directory = temporaryDirectory();
  let lan: Lan;
  let machine: Machine;

  beforeAll(async () => {
    const place = (path: string) => {
      const at = join(directory.path, "layer", path);
      mkdirSync(dirname(at), { recursive: true });
      return at;
    };
    copyFileSync(buildVersion(directory.path, "0.1.0"), place("usr/local/bin/agent"));
    const good = readFileSync(buildVersion(directory.path, "0.2.0"));
    const publish = (name: string, content: { version: string; sequence: number }, program: Uint8Array) =>
      makeRelease(place(`srv/${name}`), { ...content, executables: { [hostTarget()]: program } }, releaseKey);
    await publish("good", { version: "0.2.0", sequence: 5 }, good);
    await publish("hangs", { version: "0.3.0", sequence: 6 }, standIn("0.3.0", "exec sleep 1000"));
    lan = makeLan(["control"]);
    machine = makeMachine(lan.host("control").namespace, join(directory.path, "layer"));
    await machine.boot();
    await machine.must(
      `echo "${lan.host("control").address} control.example.org" >> /etc/hosts && hostname control`,
    );
    v.parse(Setup, await machine.must(setup, 120_000));
    await machine.must("agent admin org create beta --network 10.88.0.0/16");
    const { join_key: key } = v.parse(Key, await machine.must("agent admin token create beta --json"));
    await machine.run(`echo ${key} | agent up --key-file - --mode desktop --node-name desk --wait 1s`);
    await machine.until(isSettled, 60_000);
  }, 300_000);

  afterAll(async () => {
    await machine[Symbol.asyncDispose]();
    lan[Symbol.dispose]();
    directory[Symbol.dispose]();
  });

  const version = () => machine.must(versionLine);
  const goBack = async () => {
    if ((await version()) === "0.2.0") await machine.must("agent self-update --rollback", 120_000);
    await machine.until(isSettled, 60_000);
  };

  test("killed, or cut off from power, at any instant: all run one version, and the next update completes it", async () => {
    const settled: number[] = [];
    let updated = 0;
    // Each takes about ten seconds: CI has a minute for them.
    for (const [at, ms] of instants(inFull ? 100 : 50, 14_000).entries()) {
      const running = machine.run(`timeout --signal=KILL ${ms / 1000} ${update("good")}`, 180_000);
      if (at % 2 === 0) await running;
      else {
        await Bun.sleep(ms);
        await machine.cutPower();
        await running;
        await machine.boot();
      }
      settled.push(await machine.until(isSettled, 60_000));
      const left = await version();
      expect(["0.1.0", "0.2.0"]).toContain(left);
      if (left === "0.2.0") updated += 1;
      // What is said is true.
      const check = await machine.run(update("good --check"));
      expect({ ms, left, ...check }).toMatchObject({ status: left === "0.2.0" ? 0 : 10 });
      const doctor = await machine.run("agent doctor");
      expect({ ms, left, ...doctor }).toMatchObject({ status: 0 });
      const { status, stdout } = await machine.run(update("good"), 180_000);
      expect({ ms, status, stdout }).toMatchObject({ status: 0 });
      await machine.until(isSettled, 60_000);
      await machine.until(isTidy, 60_000);
      expect(await version()).toBe("0.2.0");
      await goBack();
      if (inFull)
        process.stderr.write(
          `${at}: ${(ms / 1000).toFixed(1)} s, left ${left}, settled after ${((settled.at(-1) ?? 0) / 1000).toFixed(1)} s\n`,
        );
    }
    const sorted = settled.toSorted((a, b) => a - b).map((ms) => (ms / 1000).toFixed(1));
    process.stderr.write(
      `${sorted.length} interruptions: ${updated} left the new version; settled after ${sorted[sorted.length >> 1]} s (median), at most ${sorted.at(-1)} s\n`,
    );
  }, 3_600_000);

  test("two at once, the second one bad: the first one's version is what is left, and what is said", async () => {
    const first = machine.run(update("good"), 180_000);
    await Bun.sleep(500);
    const second = await machine.run(update("hangs"), 180_000);
    expect(await first).toMatchObject({ status: 0 });
    expect(second.status).toBe(1);
    await machine.until(isSettled, 60_000);
    expect(await version()).toBe("0.2.0");
    if (second.stdout.includes("did not work here")) {
      const check = await machine.run("agent self-update --check --release-url /srv/hangs");
      expect(check.stdout).toContain(
        "0.3.0 was tried here and rolled back: the daemon does not become ready",
      );
    }
  }, 300_000);

  test("a power cut while one that hangs is on trial: the control plane answers within a minute of the boot", async () => {
    const before = await version();
    const running = machine.run(update("hangs"), 180_000);
    await machine.until("[ $(stat -c %s /usr/local/bin/agent) -lt 1000 ]", 30_000);
    await machine.cutPower();
    await running;
    await machine.boot();
    await machine.until(isSettled, 60_000);
    expect(await version()).toBe(before);
  }, 300_000);
});
