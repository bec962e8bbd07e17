// The compiled executable on a pseudo-terminal: register asks for e-mail and password, and hides the password. Only
// terminals get color and progress.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, readdirSync } from "node:fs";
import { join } from "node:path";
import {
  agent,
  buildAgent,
  cleanEnvironment,
  startControlPlane,
  type ControlPlane,
} from "../support/agent.ts";
import { makeOrganization, owner } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const directory = temporaryDirectory();
let plane: ControlPlane;

beforeAll(async () => {
  buildAgent();
  plane = await startControlPlane(join(directory.path, "server"));
  await makeOrganization(plane);
}, 60_000);

afterAll(async () => {
  await plane.stop();
  directory[Symbol.dispose]();
});

/** Types each answer when its question appears. Returns the terminal's output and the exit status. */
async function onTerminal(
  words: readonly string[],
  answers: readonly (readonly [question: string, answer: string])[],
  env: Record<string, string> = {},
  program: readonly string[] = [agent],
): Promise<{ status: number; shown: string }> {
  let shown = "";
  const left = [...answers];
  const child = Bun.spawn([...program, ...words], {
    env: cleanEnvironment({ TERM: "xterm", ...env }),
    terminal: {
      data(terminal, data) {
        shown += Buffer.from(data).toString();
        const next = left[0];
        if (next === undefined || !shown.endsWith(next[0])) return;
        left.shift();
        terminal.write(next[1]);
      },
    },
  });
  const status = await child.exited;
  // Wait for output that is still in the terminal.
  await Bun.sleep(50);
  expect(left).toEqual([]);
  return { status, shown };
}

function register(root: string, name: string): string[] {
  const target = ["--api-base", plane.url, "--org-slug", "acme", "--node-name", name];
  return ["register", ...target, "--config-root", root, "--mode", "server", "--no-start"];
}

test("register asks for e-mail and password, and never shows the password", async () => {
  const root = mkdtempSync(join(directory.path, "asked-"));
  const answers = [
    ["E-mail: ", `x\u007f${owner.email}\r`],
    ["Password: ", `${owner.password}\r`],
  ] as const;
  const { status, shown } = await onTerminal(register(root, "asked"), answers);
  expect(`${status} ${shown}`).toMatch(/^0 [^]*Registered asked with acme: 10\.77\.0\.\d+/);
  expect(shown).toContain(owner.email);
  expect(shown).not.toContain(owner.password);
  expect(readdirSync(root)).toEqual(["acme"]);
}, 30_000);

test("both answers may be pasted at once", async () => {
  const root = mkdtempSync(join(directory.path, "pasted-"));
  const answers = [["E-mail: ", `${owner.email}\r${owner.password}\r`]] as const;
  const { status, shown } = await onTerminal(register(root, "pasted"), answers);
  expect(`${status} ${shown}`).toMatch(/^0 [^]*Registered pasted with acme/);
  expect(shown).not.toContain(owner.password);
}, 30_000);

test("a wrong password and Ctrl-C leave nothing behind", async () => {
  const root = join(directory.path, "none");
  mkdirSync(root);
  const email = ["E-mail: ", `${owner.email}\r`] as const;
  const wrong = await onTerminal(register(root, "wrong"), [email, ["Password: ", "not this\r"]]);
  expect(`${wrong.status} ${wrong.shown}`).toMatch(/^5 /);
  expect(wrong.shown).not.toContain("not this");
  const stopped = await onTerminal(register(root, "stopped"), [email, ["Password: ", "\u0003"]]);
  expect(`${stopped.status} ${stopped.shown}`).toMatch(/^130 [^]*Interrupted/);
  expect(readdirSync(root)).toEqual([]);
}, 30_000);

test("Ctrl-C at each kind of question ends with 130, like a program that the signal ended", async () => {
  const root = join(directory.path, "questions");
  const data = ["--data-dir", plane.dataDirectory];
  const questions: [string, string[]][] = [
    ["E-mail: ", register(root, "first")],
    ["Join key (not shown): ", ["up", "--config-root", root]],
    ["Password: ", ["admin", "user", "create", "asked@company.example", ...data]],
    ["Passphrase of the CA key: ", ["admin", "export", "acme", join(root, "out"), ...data]],
    ["Password: ", ["login", plane.url, "--email", owner.email]],
  ];
  for (const [question, words] of questions) {
    const { status, shown } = await onTerminal(words, [[question, "\u0003"]], { HOME: root });
    expect(`${words[0]}: ${status} ${shown}`).toMatch(/^\w+: 130 /);
  }
});

test("register asks for a new user's password twice", async () => {
  const words = ["admin", "user", "create", "typed@company.example", "--data-dir", plane.dataDirectory];
  const password = "another correct horse";
  const made = await onTerminal(words, [
    ["Password: ", `${password}\r`],
    ["Again: ", `${password}\r`],
  ]);
  expect(`${made.status} ${made.shown}`).toMatch(/^0 /);
  expect(made.shown).not.toContain(password);
  const signIn = await fetch(`${plane.url}/api/token/`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ email: "typed@company.example", password }),
  });
  expect(signIn.status).toBe(200);
  const differing = await onTerminal(words, [["Password: ", "one of two\rtwo of two\r"]]);
  expect(`${differing.status} ${differing.shown}`).toMatch(/^2 [^]*inputs differ/);
}, 30_000);

test("a command asks again after other questions, and another program asks after that", async () => {
  const script = `
    import { ask, endQuestions } from ${JSON.stringify(join(import.meta.dir, "../../src/cli/ask.ts"))};
    const system = { stderr: { write: (text) => process.stderr.write(text) }, stdinIsTerminal: true };
    const [one] = await ask([{ text: "one: ", isSecret: false }], system);
    const [two] = await ask([{ text: "two: ", isSecret: false }], system);
    endQuestions();
    const other = ["sh", "-c", "printf 'other: ' >/dev/tty; read word </dev/tty; echo it has $word"];
    await Bun.spawn(other, { stdin: "inherit", stdout: "inherit", stderr: "inherit" }).exited;
    console.log("answers " + one + two);`;
  const answers = [
    ["one: ", "1\r"],
    ["two: ", "2\r"],
    ["other: ", "word\r"],
  ] as const;
  const { status, shown } = await onTerminal(["-e", script], answers, {}, [process.execPath]);
  expect([status, shown]).toEqual([0, expect.stringContaining("it has word")]);
  expect(shown).toContain("answers 12");
});
