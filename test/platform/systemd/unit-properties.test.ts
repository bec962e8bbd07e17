// Properties of a unit as `systemctl show` prints them.

import { expect, test } from "bun:test";
import { unitState } from "../../../src/platform/service-state.ts";
import { unitProperties } from "../../../src/platform/systemd/unit-properties.ts";

test("no answer is not an answer of empty values", async () => {
  const system = {
    run: async () => ({ status: 1, stdout: "", stderr: "Failed to connect to bus", timedOut: false }),
  };
  expect(await unitProperties("a.service", ["MainPID"], system)).toBeUndefined();
  expect(await unitState("a.service", system)).toEqual({
    is: "unknown",
    startsAtBoot: false,
    pid: undefined,
  });
});

test("values keep their equals signs, and what is not printed is empty", async () => {
  const asked: string[][] = [];
  const stdout = "MainPID=12\nExecStart={ path=/usr/bin/nebula ; argv[]=a=b ; }\nXMainPID=99\nJob=\n";
  const system = {
    run: async (argv: readonly string[]) => {
      asked.push([...argv]);
      return { status: 0, stdout, stderr: "", timedOut: false };
    },
  };
  expect(await unitProperties("a.service", ["Job", "ExecStart", "MainPID", "Other"], system)).toEqual({
    Job: "",
    ExecStart: "{ path=/usr/bin/nebula ; argv[]=a=b ; }",
    MainPID: "12",
    Other: "",
  });
  expect(asked[0]?.slice(1)).toEqual([
    "--no-ask-password",
    "show",
    "--property=Job,ExecStart,MainPID,Other",
    "a.service",
  ]);
});
