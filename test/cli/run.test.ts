import { describe, expect, test } from "bun:test";
import { allCommands, firstCommands } from "../../src/cli/commands.ts";
import { run } from "../../src/cli/run.ts";
import { AppError } from "../../src/base/errors.ts";
import { realSystem, type System } from "../../src/base/system.ts";
import { temporaryDirectory } from "../support/temporary.ts";

/** Runs one command line in this process. */
async function agent(argv: string[], env: Record<string, string> = {}, own: Partial<System> = {}) {
  const out: string[] = [];
  const err: string[] = [];
  const stream = (lines: string[]) => ({
    write: (text: string) => void lines.push(text),
    isTerminal: "TERM" in env,
    columns: 80,
  });
  const system: System = { ...realSystem(), ...own, env, stdout: stream(out), stderr: stream(err) };
  const status = await run(argv, system);
  return { status, stdout: out.join(""), stderr: err.join("") };
}

describe("the command line", () => {
  test("prints one JSON object with --json, before or after the command", async () => {
    for (const argv of [
      ["--json", "version", "--no-check"],
      ["version", "--no-check", "--json"],
    ]) {
      const { status, stdout, stderr } = await agent(argv);
      expect(status).toBe(0);
      expect(stderr).toBe("");
      expect(Object.keys(JSON.parse(stdout))).toEqual(
        expect.arrayContaining(["version", "target", "commit", "update"]),
      );
    }
  });

  test("reports wrong usage on stderr with exit status 2", async () => {
    const { status, stdout, stderr } = await agent(["version", "--no-chek"]);
    expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
    expect(stderr).toBe('agent: Unknown flag --no-chek\nDid you mean "--no-check"? See --help.\n');
  });

  test("prints an error as one object with --json, with the same exit status", async () => {
    const { status, stdout, stderr } = await agent(["versoin", "--json"]);
    expect(status).toBe(2);
    expect(stderr).toBe("");
    expect(JSON.parse(stdout)).toEqual({
      error: {
        code: "usage",
        message: 'Unknown command "versoin"',
        hint: 'Did you mean "version"? See `agent --help`.',
      },
    });
  });

  test("prints an error as an object for every spelling of --json that it takes", async () => {
    const lines: [string[], Record<string, string>?][] = [
      [["version", "--no-chek", "--json=yes"]],
      [["version", "--no-chek", "--json=TRUE"]],
      [["version", "--no-chek"], { AGENT_JSON: "Yes" }],
    ];
    for (const [argv, env] of lines)
      expect(await agent(argv, env)).toMatchObject({
        status: 2,
        stdout: expect.stringMatching(/^\{/),
        stderr: "",
      });
    expect((await agent(["version", "--no-chek", "--json=no"], { AGENT_JSON: "yes" })).stdout).toBe("");
  });

  test("prints help on stdout with exit status 0, even if the line is wrong otherwise", async () => {
    for (const argv of [
      ["--help"],
      ["help"],
      ["version", "--help", "--bogus"],
      ["help", "version"],
      ["overlay", "--help"],
    ]) {
      const { status, stdout, stderr } = await agent(argv);
      expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
      expect(stdout).toContain("USAGE");
    }
  });

  test("without a command, shows the commands of day one on stderr with exit status 2", async () => {
    const { status, stdout, stderr } = await agent([]);
    expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
    expect(stderr.split("\n").length).toBeLessThan(40);
    const all = await allCommands();
    for (const name of firstCommands.flatMap(({ names }) => names))
      expect(stderr).toMatch(new RegExp(`^ {2}${name} +${all[name]?.meta.description ?? "missing"}$`, "m"));
    for (const way of ["help commands", "admin --help", "help flags"]) {
      expect(stderr).toContain(`agent ${way} `);
      expect((await agent(way.split(" "))).status).toBe(0);
    }
  });

  test("help commands and admin --help show every command", async () => {
    const list = (await agent(["help", "commands"])).stdout;
    const subjects = (await agent(["admin", "--help"])).stdout;
    for (const name of Object.keys(await allCommands())) {
      expect(list).toContain(`\n  ${name} `);
      const [first, subject = "", verb = ""] = name.split(" ");
      const line = subjects.split("\n").find((each) => each.startsWith(`  ${subject} `)) ?? "";
      if (first === "admin") expect(line).toContain(verb);
    }
  });

  test("the flags of the target stand once, and the help of an admin command names the place", async () => {
    const help = (await agent(["admin", "node", "list", "--help"])).stdout;
    expect(help).not.toContain("--api-base=");
    expect(help).toContain("`agent help target`");
    expect((await agent(["help", "target"])).stdout).toContain("--api-base=<URL>");
  });

  test("help flags shows every global flag, and a command's help only those that matter to it", async () => {
    const { status, stdout } = await agent(["help", "flags"]);
    expect(status).toBe(0);
    for (const flag of ["--log-format", "--autostart", "--no-autostart", "--help"])
      expect(stdout).toContain(flag);
    const help = (await agent(["version", "--help"])).stdout;
    expect(help.indexOf("--no-check")).toBeLessThan(help.indexOf("GLOBAL OPTIONS"));
    expect(help).not.toContain("--autostart");
    expect((await agent(["help", "commands"])).stdout).toContain("--config-root");
  });

  test("version reports a failed update check on stderr and in its JSON, with exit status 0", async () => {
    const argv = ["version", "--release-url", "/nowhere"];
    const text = await agent(argv);
    expect(text.status).toBe(0);
    expect(text.stdout.split("\n")).toHaveLength(2);
    expect(text.stderr).toMatch(/^warning: The check for updates failed .*Cannot read \/nowhere\/.*\n$/);
    const { status, stdout } = await agent([...argv, "--json"]);
    expect(status).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({
      update: {
        available: false,
        error: { code: "failed", message: expect.stringContaining("Cannot read /nowhere/") },
      },
    });
    expect(JSON.parse((await agent(["version", "--no-check", "--json"])).stdout).update).toEqual({
      available: false,
    });
  });

  test("--log-format json writes each log line as an object", async () => {
    const argv = ["version", "--log-format", "json", "--release-url", "/nowhere"];
    const { status, stderr } = await agent(argv);
    expect(status).toBe(0);
    expect(JSON.parse(stderr)).toMatchObject({
      level: "warn",
      message: expect.stringContaining("The check for updates failed"),
    });
    expect((await agent(["version", "--log-format", "xml"])).status).toBe(2);
  });

  test("status --watch redraws a terminal, but writes no escape with TERM=dumb", async () => {
    const watch = async (env: Record<string, string>) => {
      let looks = 0;
      const sleep = () =>
        ++looks < 3 ? Promise.resolve() : Promise.reject(new AppError("interrupted", "end"));
      using root = temporaryDirectory();
      return await agent(["status", "--watch", "--config-root", root.path], env, { sleep });
    };
    expect((await watch({ TERM: "xterm" })).stdout.split("\u001b[2J")).toHaveLength(4);
    const plain = await watch({ TERM: "dumb" });
    expect(plain.stdout).not.toContain("\u001b");
    // Printed once, because nothing changes.
    expect(plain.stdout.trim().split("\n")).toHaveLength(1);
  });

  test("refuses an invalid value of a global flag", async () => {
    expect((await agent(["--ipc-mode", "tcp"])).stderr).toContain(
      '--ipc-mode must be one of socket, pipe, not "tcp"',
    );
    expect((await agent(["--ipc-mode", "tcp"])).status).toBe(2);
  });
});
