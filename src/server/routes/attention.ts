// What of the nodes needs a person, for the first page of the console and for whoever watches from a script.

import * as v from "valibot";
import { nothing, organizationRoute, type Route } from "../http/route.ts";
import { foundOf, maxFirst, nodeTrouble, NodeTrouble } from "../nodes/attention.ts";
import { brokenByNode, BrokenPaths } from "../paths/list.ts";
import { FailingTests, failingTests } from "../policy-files/upkeep.ts";
import type { Services } from "../services.ts";
import { ownerOf } from "./paths.ts";

const Attention = v.object({
  ...NodeTrouble.entries,
  broken_paths: foundOf(BrokenPaths),
  failing_tests: FailingTests,
});

export function attentionRoutes(services: Services): Route[] {
  return [
    organizationRoute({
      method: "GET",
      path: "nodes/attention/",
      access: "member",
      scope: "nodes",
      name: "nodes_attention",
      summary:
        "How many nodes are online, and which need a person: of each kind their number and the first 20. Members see the broken paths of their own nodes. `failing_tests`: how many tests of the policy failed when they ran last, null if none",
      takes: nothing,
      answers: { 200: { description: "Nodes that need a person", schema: Attention } },
      async handle(call) {
        const [trouble, broken, failing] = await Promise.all([
          nodeTrouble(services, call.org.id),
          brokenByNode(services.db, call.org.id, { ownerId: ownerOf(call), limit: maxFirst }),
          failingTests(services.db, call.org.id),
        ]);
        return { body: { ...trouble, broken_paths: broken, failing_tests: failing } };
      },
    }),
  ];
}
