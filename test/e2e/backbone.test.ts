// From an empty machine to a ping over a real overlay, and to its end by deletion, with the compiled executable alone.

import { expect, test } from "bun:test";
import { mkdirSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import * as v from "valibot";
import { tokenPairsApi } from "../../src/api/sessions.ts";
import { DownloadAnswer } from "../../src/protocol/download.ts";
import { ErrorBody } from "../../src/protocol/error-body.ts";
import { paths } from "../support/paths.ts";
import {
  agent,
  agentJson,
  buildAgent,
  cleanEnvironment,
  runAgent,
  startControlPlane,
} from "../support/agent.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { makeLan, startPing } from "../support/namespaces.ts";
import { makeOrganization, registerNode, startEngine } from "../support/overlay.ts";
import { runSync } from "../support/debian.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

const modes: Record<string, string> = {
  "config.yml": "644",
  "ca.crt": "644",
  "node.crt": "644",
  "host.crt": "644",
  "node-config.json": "644",
  "node.key": "600",
  "host.key": "600",
  "credentials.json": "600",
};

asRoot("backbone", () => {
  describeEngines("three nodes", ({ nebula, nebulaCert }) => {
    test("register, talk through the lighthouse, and stop talking to the one that is deleted", async () => {
      using directory = temporaryDirectory();
      await using plane = await startControlPlane(join(directory.path, "server"));
      const acme = await makeOrganization(plane);
      const token = await acme.makeToken(["--uses", "3", "--lighthouse"]);
      using lan = makeLan(["lighthouse", "alpha", "beta"]);
      const root = (name: string) => join(directory.path, name);
      const enrol = (name: string, flags: string[] = []) =>
        registerNode(acme, root(name), name, token, ["--overlay-binary", nebula, ...flags]);

      const lighthouse = await enrol("lighthouse", [
        "--is-lighthouse",
        "--public-ip",
        lan.host("lighthouse").address,
      ]);
      const alpha = await enrol("alpha");
      const beta = await enrol("beta");
      expect(new Set([lighthouse, alpha, beta].map((node) => node.ip_address)).size).toBe(3);

      for (const { directory: of } of [lighthouse, alpha, beta]) {
        for (const [file, mode] of Object.entries(modes)) {
          expect(`${file} ${(statSync(join(of, file)).mode & 0o777).toString(8)}`).toBe(`${file} ${mode}`);
        }
        expect((statSync(of).mode & 0o777).toString(8)).toBe("755");
        expect(runSync([nebula, "-test", "-config", join(of, "config.yml")])).not.toBe("");
        runSync([nebulaCert, "verify", "-ca", join(of, "ca.crt"), "-crt", join(of, "host.crt")]);
        expect(readFileSync(join(of, "config.yml"), "utf8")).toMatch(/disconnect_invalid: true/);
      }

      using first = await startEngine(lan.host("lighthouse"), nebula, lighthouse.directory);
      using second = await startEngine(lan.host("beta"), nebula, beta.directory);
      using third = await startEngine(lan.host("alpha"), nebula, alpha.directory);
      const ping = startPing(lan.host("alpha"), beta.ip_address);
      const other = startPing(lan.host("lighthouse"), beta.ip_address);
      await Promise.all([ping.reply(10_000), other.reply(10_000)]);

      // Without news, sync-config changes nothing and reports that.
      const everywhere = async (command: string[], name: string) =>
        agentJson([...command, "--config-root", root(name), "--overlay-binary", nebula]);
      const same = await everywhere(["sync-config"], "alpha");
      expect(same).toMatchObject({ organizations: [{ org_slug: "acme", result: "same" }] });
      const checkin = await everywhere(["checkin"], "alpha");
      expect(checkin).toMatchObject({ organizations: [{ org_slug: "acme", config_changed: false }] });

      const deleted = await acme.api("DELETE", paths.node("acme", beta.node_id));
      expect(deleted.status).toBe(204);
      for (const name of ["alpha", "lighthouse"]) {
        const changed = await everywhere(["sync-config"], name);
        expect(changed).toMatchObject({ organizations: [{ result: "changed" }] });
      }
      first.hangUp();
      third.hangUp();
      await Bun.sleep(5000);
      const silence = Promise.any([ping.reply(3000), other.reply(3000)]).catch(() => "silence");
      expect(await silence).toBe("silence");
      const rest = startPing(lan.host("alpha"), lighthouse.ip_address);
      await rest.reply(20_000);
      await Promise.all([ping.stop(), other.stop(), rest.stop()]);
      expect(second.log()).not.toContain("panic");

      // The deleted node gets a signed order and stops.
      const told = await runAgent(["check-auth", "--config-root", root("beta"), "--json"]);
      expect(told.status).toBe(7);
      expect(JSON.parse(told.stdout)).toMatchObject({ organizations: [{ result: "revoked" }] });
      expect(readdirSync(beta.directory)).toContain("auth-revoked.json");
    }, 90_000);
  });
});

test("a node token gives access to its own two endpoints only", async () => {
  using directory = temporaryDirectory();
  await using plane = await startControlPlane(join(directory.path, "server"));
  const acme = await makeOrganization(plane);
  const token = await acme.makeToken(["--uses", "2"]);
  const one = await registerNode(acme, join(directory.path, "one"), "one", token);
  const two = await registerNode(acme, join(directory.path, "two"), "two", token);
  const credentials: unknown = JSON.parse(readFileSync(join(one.directory, "credentials.json"), "utf8"));
  const { api_token } = v.parse(v.object({ api_token: v.string() }), credentials);
  expect(api_token).toMatch(/^[A-Za-z0-9_-]{43}$/);

  const own = await acme.api("GET", paths.downloadConfig("acme", one.node_id), undefined, api_token);
  expect(own.status).toBe(200);
  expect(v.parse(DownloadAnswer, await own.json()).node.name).toBe("one");
  const beat = { version: "0.1.0", uptime: 1 };
  const checkin = await acme.api("POST", paths.checkin("acme", one.node_id), beat, api_token);
  expect(checkin.status).toBe(200);

  const closed: [string, string][] = [
    ["GET", paths.node("acme", one.node_id)],
    ["PATCH", paths.node("acme", one.node_id)],
    ["DELETE", paths.node("acme", one.node_id)],
    ["GET", paths.nodes("acme")],
    ["POST", paths.register("acme")],
    ["GET", paths.organizations],
    ["GET", paths.config("acme", one.node_id)],
    ["POST", paths.renewCert("acme", one.node_id)],
    ["POST", tokenPairsApi.create.path],
    ["GET", paths.checkin("acme", one.node_id)],
    ["GET", paths.downloadConfig("acme", two.node_id)],
    ["POST", paths.checkin("acme", two.node_id)],
  ];
  for (const [method, path] of closed) {
    const answer = await acme.api(method, path, method === "GET" ? undefined : {}, api_token);
    expect(`${method} ${path} ${answer.status}`).toBe(`${method} ${path} 403`);
    expect(v.parse(ErrorBody, await answer.json())).toMatchObject({
      code: "node_token_scope",
      status_code: 403,
    });
  }
  expect((await acme.api("GET", "/api/nothing/", undefined, api_token)).status).toBe(404);
});

test("the command that comes with a token is complete, also for a server with its own certificate", async () => {
  using directory = temporaryDirectory();
  await using plane = await startControlPlane(join(directory.path, "server"), ["--tls", "auto"]);
  expect((await plane.admin(["org", "create", "acme", "--network", "10.77.0.0/16"])).status).toBe(0);
  const { stdout } = await plane.admin(["token", "create", "acme", "--json"]);
  const { command } = v.parse(v.looseObject({ command: v.string() }), JSON.parse(stdout));
  expect(command).toContain("--ca-fingerprint sha256:");
  const root = join(directory.path, "root");
  mkdirSync(root);
  const pasted = Bun.spawn(["sh", "-c", `${command} --config-root ${root} --no-start --json`], {
    // PATH contains `agent`, as on a machine where it is installed.
    env: cleanEnvironment({ PATH: `${dirname(agent)}:/usr/sbin:/usr/bin:/sbin:/bin` }),
    stdout: "pipe",
    stderr: "pipe",
  });
  const printed = await new Response(pasted.stdout).text();
  expect(`${await pasted.exited} ${printed}`).toStartWith(`0 {"org_slug":"acme"`);
  const checkin = await agentJson(["checkin", "--config-root", root]);
  expect(checkin).toMatchObject({ organizations: [{ org_slug: "acme", config_changed: false }] });
});
