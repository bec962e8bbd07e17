// Explains why A cannot reach B: which rule decides, and the state of the network between them. The question is in
// the address, so that it can be sent to a colleague.

import { rulesApi, type Explained, type RuleTest } from "../../api/rules.ts";
import { nodesApi } from "../../api/nodes.ts";
import { apiPath } from "../../api/endpoint.ts";
import { useEffect, useState } from "preact/hooks";
import type { Node } from "../../protocol/node.ts";
import { ApiError, call } from "../contact/api.ts";
import type { ListedNode } from "../nodes/listed-nodes.ts";
import { useNodes } from "../nodes/node-list.ts";
import { useList, useResource } from "../contact/resource.ts";
import { query } from "../frame/router.ts";
import { Panel, TerminalButton } from "../ui/page.tsx";
import { Failure } from "../ui/parts.tsx";
import type { Saved } from "./saved.ts";
import { routerTo } from "./sides.ts";
import { packetOf } from "./network-between.ts";
import { portsFault } from "./rules.ts";
import { questionOf, QuestionForm, namedLike } from "./question-form.tsx";
import { Answer } from "./explainer-answer.tsx";

/** The question is asked when nothing was typed for so long. */
const settleMs = 200;
const none: readonly ListedNode[] = [];
type Props = { saved: Saved; slug: string; isEdited: boolean };

/** `isEdited`: there are unsaved edits, which do not count here. */
export function Explainer({ saved, slug, isEdited }: Props) {
  const question = questionOf(query.value);
  const { from, to, protocol, port } = question;
  const fault =
    port === "" || portsFault(port) === undefined
      ? undefined
      : "Enter a port from 1 to 65535. Others are: anything, icmp, udp, udp 53.";
  const { data = none, isWhole } = useNodes();
  // Until all of the list is read, a missing name may still come.
  const nodes = isWhole ? data : none;
  const sender = useNamedNode(slug, nodes, from);
  const receiver = useNamedNode(slug, nodes, to);
  const isComplete = sender !== undefined && receiver !== undefined && fault === undefined;
  // A question about any protocol has no port. Its answer is in `permitted`, which does not depend on the protocol that is sent.
  const body: RuleTest | undefined = isComplete
    ? {
        from: sender.id,
        to: receiver.id,
        protocol: protocol === "any" ? "tcp" : protocol,
        ...(port === "" ? {} : { port: Number(port) }),
      }
    : undefined;
  const { answer, error } = useVerdict(slug, body, saved);
  const packet = packetOf(question);
  useEffect(() => {
    // A link with a question leads to it, below the rules.
    if (query.peek().has("from")) document.getElementById("explainer")?.scrollIntoView();
  }, []);
  return (
    <Panel
      id="explainer"
      title="May one node reach another?"
      actions={
        isComplete ? (
          <TerminalButton
            command={["policy", "test", slug, from, to, ...(packet === "" ? [] : [packet])]}
            call={["POST", apiPath(rulesApi.test, { slug }), body]}
          />
        ) : undefined
      }
      hasRoom
    >
      <QuestionForm question={question} nodes={nodes} fault={fault} />
      <div role="status" class="answer">
        <Failure error={error} />
        {[from, to]
          .flatMap((name) => unknownOf(name, nodes, [sender, receiver]) ?? [])
          .map((sentence) => (
            <p>
              <bdi>{sentence}</bdi>
            </p>
          ))}
        {from !== "" && to !== "" ? null : (
          <p class="quiet">Name two nodes. Without a port, the answer is all that is allowed between them.</p>
        )}
        {answer === undefined || !isComplete ? null : (
          <Answer
            answer={answer}
            rules={saved.rules}
            from={sender}
            to={receiver}
            slug={slug}
            question={question}
          />
        )}
        {isComplete && isEdited ? (
          <p class="quiet">These are the rules as they are saved, without your changes.</p>
        ) : null}
      </div>
    </Panel>
  );
}

/** The first names. */
const someOf = (nodes: readonly ListedNode[]) =>
  nodes
    .slice(0, 5)
    .map(({ name }) => name)
    .join(", ") + (nodes.length > 5 ? ", …" : "");

/** A sentence if what was typed is no node, or only a part of names. `revoked`: nodes that `nodes` does not have. */
function unknownOf(
  name: string,
  nodes: readonly ListedNode[],
  revoked: readonly (Node | undefined)[],
): string | undefined {
  if (name === "" || nodes.length === 0) return undefined;
  if ([...nodes, ...revoked].some((node) => node?.name === name)) return undefined;
  const router = routerTo(name, nodes)?.name;
  if (router !== undefined) return `${name} is behind ${router}, whose rules decide: name ${router}.`;
  const inGroup = nodes.filter(({ groups }) => groups.includes(name));
  if (inGroup.length > 0)
    return `${name} is a group: the matrix of this page says what groups may reach. Here, name one of its nodes: ${someOf(inGroup)}.`;
  const alike = namedLike(nodes, name);
  const hint = alike.length === 0 ? "" : ` Nodes with this in their names: ${someOf(alike)}.`;
  return `There is no node ${name}.${hint}`;
}

/** The node of this name, also one that is revoked. */
function useNamedNode(slug: string, nodes: readonly ListedNode[], name: string): Node | undefined {
  const id = nodes.find((node) => node.name === name)?.id;
  const { data } = useResource(id === undefined ? "" : apiPath(nodesApi.retrieve, { slug, id }));
  // Revoked nodes are read only if no other node has this in its name: the user may still be typing.
  const mayBeRevoked = name !== "" && nodes.length > 0 && namedLike(nodes, name).length === 0;
  const asked = { revoked: "true", page_size: "200", search: name } as const;
  const { data: revoked = [] } = useList(mayBeRevoked ? apiPath(nodesApi.list, { slug }, asked) : "");
  return id === undefined ? revoked.find((node) => node.name === name) : data;
}

/** What the control plane answered to a question (the body as JSON), or its refusal. */
type Found = { question?: string; answer?: Explained; error?: ApiError };

/** Asks again when the rules change. Has nothing for a new question until its answer arrives. */
function useVerdict(slug: string, body: RuleTest | undefined, saved: Saved): Found {
  const [found, setFound] = useState<Found>({});
  const question = body && JSON.stringify(body);
  useEffect(() => {
    if (body === undefined || question === undefined) return undefined;
    let isOver = false;
    const timer = setTimeout(() => {
      call(rulesApi.test, { slug }, body).then(
        (answer) => isOver || setFound({ question, answer }),
        (error: unknown) => {
          if (!(error instanceof ApiError)) throw error;
          if (!isOver) setFound({ question, error });
        },
      );
    }, settleMs);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [slug, question, saved]);
  return question !== undefined && question === found.question ? found : {};
}
