// The JSON Schema of policy files, from the schema that reads them.

import { toJsonSchema } from "@valibot/to-json-schema";
import { brand } from "../../brand.ts";
import { PolicyFile } from "../policy/policy-file.ts";

export function policySchema(): Record<string, unknown> {
  const schema = toJsonSchema(PolicyFile, {
    // It cannot express some checks, such as a network without host bits: the control plane explains them.
    errorMode: "ignore",
    typeMode: "input",
    target: "draft-2020-12",
  });
  return { ...schema, title: `Policy of a network of ${brand.title}` };
}
