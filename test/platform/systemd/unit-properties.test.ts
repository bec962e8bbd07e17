// Properties of a unit as `systemctl show` prints them.

import { expect, test } from "bun:test";
import { unitProperties } from "../../../src/platform/systemd/unit-properties.ts";

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
