// The workflows of docs/policy.md with the installation of their packages, in a tree as bare as the image.

import { env } from "node:process";

env["SOAK"] = "1";
await import("../e2e/policy-workflows.test.ts");
