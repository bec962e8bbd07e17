// An engine that a user started, as in a container without systemd: sync-config reloads it and confirms that by its log,
// a configuration that fails at run time is rolled back, and a revocation stops the engine.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { closeSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { paths } from "../support/paths.ts";
import {
  buildAgent,
  cleanEnvironment,
  runAgent,
  startControlPlane,
  type ControlPlane,
} from "../support/agent.ts";
import { describeEngines } from "../support/engines.ts";
import { makeOrganization, registerNode, type Organization } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const directory = temporaryDirectory();
let plane: ControlPlane;
let acme: Organization;

beforeAll(async () => {
  buildAgent();
  plane = await startControlPlane(join(directory.path, "server"));
  acme = await makeOrganization(plane);
  for (const name of ["a", "b"]) await acme.api("POST", "/api/org/acme/groups/", { name });
}, 60_000);

afterAll(async () => {
  await plane.stop();
  directory[Symbol.dispose]();
});

describeEngines("an engine started by hand", ({ nebula, version }) => {
  test("is reloaded, keeps running, and is stopped by an order", async () => {
    const name = `hand-${version.replaceAll(".", "-")}`;
    const root = join(directory.path, name);
    const node = await registerNode(acme, root, name, await acme.makeToken(), ["--overlay-binary", nebula]);
    const run = (...words: string[]) =>
      runAgent([...words, "--config-root", root, "--overlay-binary", nebula, "--json"]);
    // Without a tun device the engine needs no rights and changes nothing on this machine.
    await acme.api("PATCH", "/api/org/acme/", { config_overrides: { tun: { disabled: true } } });
    const overrides = "listen:\n  host: 127.0.0.1\n  port: 0\n";
    writeFileSync(join(node.directory, "overrides.yml"), overrides);
    expect((await run("sync-config")).stdout).toContain('"changed"');

    const logPath = join(directory.path, `${name}.log`);
    const fd = openSync(logPath, "a");
    const engine = Bun.spawn([nebula, "-config", join(node.directory, "config.yml")], {
      env: cleanEnvironment(),
      stdin: "ignore",
      stdout: fd,
      stderr: fd,
    });
    closeSync(fd);
    const log = () => readFileSync(logPath, "utf8");
    try {
      for (let waited = 0; !log().includes("Nebula interface is active") && waited < 5000; waited += 20)
        await Bun.sleep(20);
      const path = paths.node("acme", node.node_id);
      await acme.api("PATCH", path, { groups: ["a"] });
      const changed = await run("sync-config");
      expect(`${changed.status} ${changed.stdout}`).toMatch(/^0 .*"changed"/);
      expect(log()).toContain("refreshed from disk");
      expect(engine.exitCode).toBeNull();

      // A reload does not change the address, and only the user may restart the engine: the file waits for that.
      const before = log().length;
      writeFileSync(join(node.directory, "overrides.yml"), overrides.replace("port: 0", "port: 4900"));
      const waiting = await run("sync-config");
      expect(`${waiting.status} ${waiting.stdout}`).toMatch(/^0 .*"changed"/);
      expect(waiting.stderr).toContain("this program did not start it");
      expect(log().slice(before)).not.toContain("Caught HUP");

      expect((await acme.api("DELETE", path)).status).toBe(204);
      const told = await run("check-auth");
      expect(`${told.status} ${told.stdout}`).toMatch(/^7 .*"stopped"/);
      expect(await engine.exited).toBe(0);
    } finally {
      engine.kill("SIGKILL");
    }
  }, 60_000);
});
