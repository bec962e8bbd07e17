// Policy as a file with the executable: the workflows of docs/policy.md, and a deadline that survives a kill.

import { expect, test } from "bun:test";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { agent, buildAgent, root, startControlPlane, type ControlPlane } from "../support/agent.ts";
import { makeOrganization } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

const open = `groups: {web: {}, db: {}}
rules:
  - {direction: outbound, peer: any, target: any}
  - {protocol: tcp, ports: 5432, peer: group:web, target: group:db}
tests:
  - accept: {from: group:web, to: group:db, protocol: tcp, port: 5432}
`;
const closed = open.replace("ports: 5432", "ports: 80");

/** The shell lines of a workflow that run agent, with the variables that they get. */
function workflowLines(): { system: string; verb: string; line: string }[] {
  const text = readFileSync(join(root, "docs/policy.md"), "utf8");
  const blocks = [...text.matchAll(/```yaml\n(# \.(github|gitlab)[^]*?)```/g)];
  expect(blocks).toHaveLength(2);
  return blocks.flatMap(([, block = "", system = ""]) => {
    // The workflow as its own system reads it: strings below `run` and `script`.
    const lines: string[] = [];
    const walk = (value: unknown): void => {
      if (typeof value === "string" && value.includes("agent admin policy")) lines.push(value);
      else if (typeof value === "object" && value !== null) Object.values(value).forEach(walk);
    };
    walk(Bun.YAML.parse(block));
    return lines.map((line) => ({ system, line, verb: /policy (\w+)/.exec(line)?.[1] ?? "" }));
  });
}

/** Runs a line as a runner does: an empty home, the executable there, no variable but the workflow's. */
async function inRunner(home: string, line: string, env: Record<string, string>) {
  const child = Bun.spawn(["sh", "-ec", line], {
    cwd: join(home, "checkout"),
    env: { HOME: home, PATH: "/usr/bin:/bin", ...env },
    stdout: "pipe",
    stderr: "pipe",
  });
  const [out, err] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  return { status: await child.exited, out, err };
}

async function makeRunner(plane: ControlPlane, directory: string) {
  const home = join(directory, "runner");
  mkdirSync(join(home, ".local/bin"), { recursive: true });
  mkdirSync(join(home, "checkout"));
  Bun.spawnSync(["cp", agent, join(home, ".local/bin/agent")]);
  const token = async (role: string) => {
    const args = ["service-token", "create", "acme", `policy-${role}`, "--role", role, "--json"];
    const printed: unknown = JSON.parse((await plane.admin(args)).stdout);
    return v.parse(v.object({ token: v.string() }), printed).token;
  };
  const [member, admin] = [await token("member"), await token("admin")];
  const run = (
    line: string,
    policy: string,
    given = line.includes("POLICY_PLAN") || line.includes(" plan ") ? member : admin,
  ) => {
    writeFileSync(join(home, "checkout/policy.yaml"), policy);
    return inRunner(home, line, {
      AGENT_API_BASE: plane.url,
      AGENT_ACCESS_TOKEN: given,
      POLICY_PLAN_TOKEN: member,
      POLICY_APPLY_TOKEN: admin,
    });
  };
  return { run, member };
}

test("the workflows of the documentation plan a merge request, refuse a mistake, and apply", async () => {
  using directory = temporaryDirectory();
  await using plane = await startControlPlane(join(directory.path, "server"));
  await makeOrganization(plane);
  const { run, member } = await makeRunner(plane, directory.path);
  const lines = workflowLines();
  expect(lines.map(({ system, verb }) => `${system} ${verb}`)).toEqual([
    "github plan",
    "github apply",
    "gitlab plan",
    "gitlab apply",
  ]);
  for (const { system, verb, line } of lines) {
    const wrong = await run(line, closed);
    expect([system, verb, wrong.status]).toEqual([system, verb, 1]);
    expect(wrong.out + wrong.err).toContain(
      "a node of group web must reach a node of group db on tcp/5432, but tcp/5432 is refused",
    );
    const done = await run(line, open);
    expect([system, verb, done.status, done.status === 0 ? "" : done.err]).toEqual([system, verb, 0, ""]);
  }
  expect((await plane.admin(["policy", "get", "acme"])).stdout).toBe(open);
  // The token of a merge request cannot apply.
  const apply = lines.find(({ system, verb }) => system === "github" && verb === "apply")?.line ?? "";
  expect((await run(apply, open, member)).status).toBe(5);
}, 60_000);

test("an unconfirmed policy goes back after the server was killed and started again", async () => {
  using directory = temporaryDirectory();
  const data = join(directory.path, "server");
  const first = await startControlPlane(data);
  await makeOrganization(first);
  expect((await first.admin(["policy", "apply", "acme", "-", "--prune"], open)).status).toBe(0);
  const more = open.replace("ports: 5432", "ports: 5432-5440");
  const applied = await first.admin(["policy", "apply", "acme", "-", "--prune", "--confirm", "10s"], more);
  expect([applied.status, applied.status === 0 ? "" : applied.stderr]).toEqual([0, ""]);
  process.kill(first.pid, "SIGKILL");
  await first.stop();
  expect((await first.admin(["policy", "get", "acme"])).stdout).toBe(more);
  await using again = await startControlPlane(data);
  const end = Date.now() + 40_000;
  let shown = "";
  while (shown !== open && Date.now() < end) {
    await Bun.sleep(500);
    shown = (await again.admin(["policy", "get", "acme"])).stdout;
  }
  expect(shown).toBe(open);
}, 90_000);
