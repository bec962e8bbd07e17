// The test knows every secret of a registration and searches for it where it must not be: logs, errors, the process
// list, dry runs, the database.

import { expect, test } from "bun:test";
import { mkdirSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { agent, buildAgent, cleanEnvironment, runAgent, startControlPlane } from "../support/agent.ts";
import { makeOrganization, owner, registerArguments, tryRegister } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

type Canary = { name: string; value: string };

function keyBody(pem: string): string {
  return pem.split("\n").find((line) => line !== "" && !line.startsWith("-----")) ?? "";
}

function found(canaries: readonly Canary[], where: string, text: string): string[] {
  return canaries.filter(({ value }) => text.includes(value)).map(({ name }) => `${name} in ${where}`);
}

/** Arguments and environment of all our processes, as any user or root can see them. */
function processList(): string {
  return readdirSync("/proc")
    .filter((entry) => /^\d+$/.test(entry))
    .map((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, "utf8");
      } catch {
        // It has ended meanwhile.
        return "";
      }
    })
    .join("\n");
}

function filesBelow(path: string): string[] {
  if (!statSync(path).isDirectory()) return [path];
  return readdirSync(path).flatMap((name) => filesBelow(join(path, name)));
}

test("no secret is in a log, an error, the process list, a dry run or the database", async () => {
  buildAgent();
  using directory = temporaryDirectory();
  const data = join(directory.path, "server");
  await using plane = await startControlPlane(data, ["--verbose"]);
  const acme = await makeOrganization(plane);
  const token = await acme.makeToken(["--uses", "2"]);
  const root = join(directory.path, "node");
  mkdirSync(root);
  const canaries: Canary[] = [
    { name: "password", value: owner.password },
    { name: "registration token", value: token },
  ];
  const seen: string[] = [];

  const dry = await tryRegister(acme, root, "node", token, ["--dry-run", "--verbose"]);
  expect(`${dry.status} ${dry.stdout}`).toStartWith(`0 {"plan":`);
  expect(readdirSync(root)).toEqual([]);

  const logFile = join(directory.path, "register.log");
  const args = registerArguments(acme, root, "node", ["--verbose", "--log-file", logFile]);
  const child = Bun.spawn([agent, ...args], {
    env: cleanEnvironment(),
    stdin: new Blob([token]),
    stdout: "pipe",
    stderr: "pipe",
  });
  while (child.exitCode === null) {
    seen.push(...found(canaries, "the process list", processList()));
    await Bun.sleep(3);
  }
  const register = (await new Response(child.stdout).text()) + (await new Response(child.stderr).text());
  expect(`${child.exitCode} ${register}`).toStartWith("0");

  const of = join(root, "acme");
  const read = (name: string) => readFileSync(join(of, name), "utf8");
  canaries.push(
    { name: "host.key", value: keyBody(read("host.key")) },
    { name: "node.key", value: keyBody(read("node.key")) },
    { name: "api token", value: /"api_token": ?"([^"]+)"/.exec(read("credentials.json"))?.[1] ?? "" },
  );
  expect(canaries.filter(({ value }) => value.length < 16)).toEqual([]);

  const runs = [dry];
  for (const words of [["checkin"], ["sync-config"], ["sync-config", "--dry-run"], ["check-auth"]]) {
    runs.push(await runAgent([...words, "--config-root", root, "--verbose", "--log-file", logFile]));
  }
  runs.push(await tryRegister(acme, root, "node", token, ["--verbose"]));
  const wrong = await acme.api("POST", "/api/token/", { email: owner.email, password: `${owner.password}!` });
  seen.push(...found(canaries, "a 401", await wrong.text()));
  const broken = await acme.api("GET", "/api/org/", undefined, token);
  seen.push(...found(canaries, "another 401", await broken.text()));

  for (const { stdout, stderr } of runs) seen.push(...found(canaries, "output", stdout + stderr));
  seen.push(...found(canaries, "register's output", register));
  seen.push(...found(canaries, "the node's log", readFileSync(logFile, "utf8")));
  expect(plane.log()).not.toBe("");
  seen.push(...found(canaries, "the control plane's log", plane.log()));
  for (const path of filesBelow(data)) {
    seen.push(...found(canaries, path, readFileSync(path, "latin1")));
    if (/control\.db|secret\.key/.test(path)) expect((statSync(path).mode & 0o077).toString(8)).toBe("0");
  }
  for (const path of filesBelow(of).filter(
    (each) => !/(host\.key|node\.key|credentials\.json)$/.test(each),
  )) {
    seen.push(...found(canaries, path, readFileSync(path, "utf8")));
  }
  expect(seen).toEqual([]);
}, 60_000);
