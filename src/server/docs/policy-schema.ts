// The JSON Schema of policy files, from the schema that reads them.

import { toJsonSchema } from "@valibot/to-json-schema";
import { brand } from "../../brand.ts";
import { maxEntries } from "../policy/yaml-document.ts";
import { PolicyFile } from "../policy/policy-file.ts";
import { maxPolicyBytes } from "../../api/policy.ts";

export function policySchema(): Record<string, unknown> {
  const schema = toJsonSchema(PolicyFile, {
    // JSON Schema cannot express some checks: those are explained by the control plane's refusals.
    errorMode: "ignore",
    typeMode: "input",
    target: "draft-2020-12",
  });
  return {
    ...schema,
    title: `Policy of a network of ${brand.title}`,
    // No keyword of JSON Schema counts the entries of all lists.
    description: `At most ${maxPolicyBytes / 1024} KiB and ${maxEntries} entries in all, in lists and below keys.`,
  };
}
