// The daemon's state: durable, replaced when damaged, refused when the disk is full.

import { afterEach, beforeEach, expect, test } from "bun:test";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openState, peekRecords } from "../../src/daemon/state.ts";
import { AppError } from "../../src/base/errors.ts";
import { runSync } from "../support/debian.ts";

let directory = "";
let path = "";
const logged: string[] = [];
const log = {
  debug() {},
  info() {},
  warn: (text: string) => logged.push(text),
  error: (text: string) => logged.push(text),
};
const open = () => openState(path, log, () => Date.UTC(2026, 10, 20, 12));
const up = { wanted: "up", forgotten: false } as const;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "state-"));
  path = join(directory, "state.db");
  logged.length = 0;
});

afterEach(() => rmSync(directory, { recursive: true, force: true }));

test("openState() reads what was written before, from a file that only root can read", () => {
  const first = open();
  const process = { pid: 7, started: "boot:1", startedAt: 1000 };
  first.putRecord("acme", {
    ...up,
    process,
    lastCheckinAt: "2026-11-20T12:00:00Z",
    restartPending: ["tun.dev"],
  });
  first.putRecord("beta", { wanted: "down", forgotten: true });
  first.putRecord("beta", { wanted: "down", forgotten: false });
  first.setActive("acme");
  expect(first.active()).toBe("acme");
  first.close();
  const second = open();
  expect(second.active()).toBe("acme");
  expect(second.records()).toEqual(
    new Map([
      ["acme", { ...up, process, lastCheckinAt: "2026-11-20T12:00:00Z", restartPending: ["tun.dev"] }],
      ["beta", { wanted: "down" as const, forgotten: false }],
    ]),
  );
  second.setActive(undefined);
  second.close();
  const third = open();
  expect(third.active()).toBeUndefined();
  third.close();
  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(logged).toEqual([]);
});

test("openState() reads what a killed process wrote", async () => {
  const script = join(directory, "writer.ts");
  const source = join(import.meta.dir, "../../src/daemon/state.ts");
  writeFileSync(
    script,
    `import { openState, peekRecords } from ${JSON.stringify(source)};
     const store = openState(${JSON.stringify(path)}, { debug() {}, info() {}, warn() {}, error() {} }, Date.now);
     store.putRecord("acme", { wanted: "up", forgotten: false });
     process.kill(process.pid, "SIGKILL");`,
  );
  await Bun.spawn([process.execPath, script]).exited;
  const store = open();
  expect([...store.records().keys()]).toEqual(["acme"]);
  store.close();
});

const damages: [string, () => void][] = [
  [
    "not a database",
    () => writeFileSync(path, "this is not a database, and long enough to be looked at ".repeat(40)),
  ],
  ["random pages", () => corrupt()],
  ["truncated", () => truncateSync(path, statSync(path).size - 3000)],
];

function corrupt(): void {
  const bytes = Buffer.alloc(statSync(path).size, 0xa5);
  // Keeps the header, so that the file opens and fails only when it is read.
  Bun.spawnSync(["/bin/dd", `of=${path}`, "conv=notrunc", "bs=1", "seek=100"], {
    stdin: bytes,
    stderr: "ignore",
  });
}

for (const [what, damage] of damages) {
  test(`a damaged state database (${what}) is renamed and replaced`, () => {
    const first = open();
    for (let at = 0; at < 50; at++) first.putRecord(`org-${at}`, { ...up, lastCheckinAt: "x".repeat(300) });
    first.close();
    damage();
    const second = open();
    expect(second.records().size).toBe(0);
    second.putRecord("acme", up);
    expect([...second.records().keys()]).toEqual(["acme"]);
    second.close();
    expect(readdirSync(directory)).toContain("state.db.damaged-20261120T120000Z");
    expect(logged[0]).toContain("is damaged");
  });
}

const losses: [string, () => void][] = [
  ...damages,
  ["an empty file", () => truncateSync(path)],
  ["random bytes", () => writeFileSync(path, Bun.hash("seed").toString().repeat(900))],
  ["deleted", () => rmSync(path)],
];
for (const [what, damage] of losses) {
  test(`after a loss of the state database (${what}) what was stopped stays stopped, and it is said`, () => {
    const first = open();
    expect(first.loss).toBeUndefined();
    for (let at = 0; at < 50; at++) first.putRecord(`org-${at}`, { ...up, lastCheckinAt: "x".repeat(300) });
    first.putRecord("acme", { wanted: "down", forgotten: false, registration: "7 now" });
    first.putRecords(
      new Map([
        ["beta", { wanted: "down", forgotten: true }],
        ["gamma", { ...up, wanted: "down" }],
      ]),
      "org-1",
    );
    first.putRecord("gamma", up);
    first.putRecord("gone", { ...up, wanted: "down" });
    first.removeRecord("gone");
    first.close();
    damage();
    const before = peekRecords(path, { warn() {}, error() {} }, Date.now, join(path, ".."));
    const second = open();
    expect(before).toEqual(second.records());
    expect([...second.records()]).toEqual([
      ["acme", { wanted: "down", forgotten: false, registration: "7 now" }],
      ["beta", { wanted: "down", forgotten: true }],
    ]);
    expect(second.loss).toContain("Stopped organizations stay stopped");
    second.putRecord("acme", up);
    second.close();
    const third = open();
    expect(third.loss).toBeUndefined();
    expect(third.records().get("acme")).toEqual(up);
    expect(third.records().get("beta")).toMatchObject({ wanted: "down" });
    third.close();
  });
}

test("a damaged copy of what is stopped is written again, and is not needed", () => {
  const first = open();
  first.putRecord("acme", { ...up, wanted: "down" });
  first.close();
  for (const text of ["", "{", '{"acme":7,"beta":{"wanted":"down"}', "[]"]) {
    writeFileSync(`${path}.stopped`, text);
    const next = open();
    expect(next.records().get("acme")).toMatchObject({ wanted: "down" });
    expect(next.loss).toBeUndefined();
    next.close();
    expect(readFileSync(`${path}.stopped`, "utf8")).toBe('{"acme":{"wanted":"down","forgotten":false}}\n');
  }
});

test("peekRecords() reads what one transaction wrote, although a daemon writes meanwhile", () => {
  const daemon = open();
  const slugs = Array.from({ length: 400 }, (_, at) => `org-${at}`);
  const write = (turn: number) => {
    const record = { ...up, lastCheckinAt: String(turn).padEnd(250) };
    daemon.putRecords(new Map(slugs.map((slug) => [slug, record])), undefined);
  };
  write(0);
  let reads = 0;
  // Between the database and its log: so much that the log is moved into the database, and begun anew.
  const read = (file: string) => {
    if (file.endsWith("-wal") && reads++ === 0) for (let turn = 1; turn < 60; turn++) write(turn);
    return readFileSync(file);
  };
  const records = peekRecords(path, log, Date.now, directory, read);
  daemon.close();
  expect(logged).toEqual([]);
  expect([...records.values()].map(({ lastCheckinAt }) => lastCheckinAt?.trim())).toEqual(
    slugs.map(() => "59"),
  );
});

test("an unreadable record is ignored, the others stay", () => {
  const first = open();
  first.putRecord("acme", up);
  first.putRecord("beta", JSON.parse('{"wanted":"sideways"}'));
  first.close();
  const second = open();
  expect([...second.records().keys()]).toEqual(["acme"]);
  expect(logged[0]).toContain("unreadable");
  second.close();
});

test.skipIf(process.getuid?.() !== 0)(
  "a full disk refuses the write and changes nothing; with room the write works again",
  () => {
    const mount = join(directory, "small");
    mkdirSync(mount);
    runSync(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", mount]);
    try {
      path = join(mount, "state.db");
      const store = open();
      store.putRecord("acme", up);
      Bun.spawnSync(["dd", "if=/dev/zero", `of=${join(mount, "fill")}`, "bs=4k"], { stderr: "ignore" });
      const refused = () =>
        store.putRecord("acme", {
          wanted: "down",
          forgotten: false,
          restartPending: Array(100).fill("x".repeat(100)),
        });
      expect(refused).toThrow(AppError);
      expect(refused).toThrow("no space left on the disk");
      expect(store.records().get("acme")).toEqual(up);
      rmSync(join(mount, "fill"));
      refused();
      expect(store.records().get("acme")?.wanted).toBe("down");
      store.close();
    } finally {
      Bun.spawnSync(["umount", mount]);
    }
  },
);
