// The answer of the explainer: whether the rules permit it, which decide, and the state of the network between the two nodes.

import type { Explained } from "../../api/rules.ts";
import { pathsApi } from "../../api/paths/paths.ts";
import { apiPath } from "../../api/endpoint.ts";
import type { Node } from "../../protocol/node.ts";
import { organization } from "../contact/me.ts";
import { configurationOf } from "../nodes/states.ts";
import { useList } from "../contact/resource.ts";
import { pathOf } from "../frame/router.ts";
import { Line, State, When } from "../ui/parts.tsx";
import { spaced } from "./class-words.ts";
import { conclusionOf, nodeFacts, packetOf, pathFact, ruledOn, type Fact } from "./network-between.ts";
import { ShowRule } from "./rule-list.tsx";
import type { Rule } from "./rules.ts";
import { Sentence } from "./sentence.tsx";
import type { Question } from "./question-form.tsx";

type AnswerProps = {
  answer: Explained;
  rules: readonly Rule[];
  from: Node;
  to: Node;
  slug: string;
  question: Question;
};

export function Answer({ answer, rules, from, to, slug, question }: AnswerProps) {
  const peersOf = ({ id }: Node) => apiPath(pathsApi.ofNode, { slug, id }, { page_size: "1000" });
  const ofSender = useList(peersOf(from)).data;
  const ofReceiver = useList(peersOf(to)).data;
  const pathThere = ofSender?.find(({ peer }) => peer === to.id);
  const pathBack = ofReceiver?.find(({ peer }) => peer === from.id);
  const paths = [pathThere, pathBack].flatMap((path) => path ?? []);
  // If one is not active, the control plane does not look at the rules.
  const isActive = from.state === "active" && to.state === "active";
  const ruled = ruledOn(question, answer);
  const [state, sentence] = conclusionOf({ ...ruled, from, to, paths });
  // With a port, one rule on each side decides; otherwise the answer is all that is allowed.
  const isOnePacket = packetOf(question) !== "";
  const pathFacts = [pathFact(from, to, pathThere), pathFact(to, from, pathBack)].flatMap(
    (fact) => fact ?? [],
  );
  const decidingRules = [answer.outbound_rule_id, answer.rule_id].flatMap(
    (id) => rules.find((rule) => rule.id === id) ?? [],
  );
  const link = ({ id, name }: Node) => (
    <a href={pathOf(slug, "nodes", id)}>
      <bdi>{name}</bdi>
    </a>
  );
  const allPermitted = answer.permitted.length === 0 ? "nothing" : spaced(answer.permitted.join(", "));
  return (
    <>
      <p class="verdict-line">
        <State name={state} word={<bdi>{sentence}</bdi>} />
      </p>
      {!isOnePacket || !isActive ? null : (
        <p>
          <bdi>{spaced(answer.reason)}</bdi>
        </p>
      )}
      {!isOnePacket || !answer.allowed ? null : (
        <>
          <p>Both rules are needed:</p>
          {decidingRules.map((rule) => (
            <Deciding key={rule.id} rule={rule} />
          ))}
        </>
      )}
      {isActive ? (
        <p>
          All that the rules allow from {link(from)} to {link(to)}: <strong>{allPermitted}</strong>.
          {to.subnets.length === 0 ? null : (
            <>
              {" "}
              The same holds for the networks behind it: <bdi>{to.subnets.join(", ")}</bdi>.
            </>
          )}
        </p>
      ) : null}
      <ul class="facts-list">
        {[...nodeFacts(from), ...nodeFacts(to), ...pathFacts].map((fact) => (
          <FactLine key={fact.about + fact.words} fact={fact} />
        ))}
        {pathFacts.length > 0 || ofSender === undefined || ofReceiver === undefined ? null : (
          <li class="quiet">
            {organization.value?.role === "member"
              ? "You see the paths of your own nodes only: none between them is known."
              : "No path between them was reported."}
          </li>
        )}
      </ul>
      {ruled.isAllowed && isActive && state === "attention" ? (
        <>
          <p>On the node that is away, or on both, this says why:</p>
          <Line text="agent doctor" />
        </>
      ) : null}
      {[from, to].map((node) => (
        <ApplyLine key={node.id} node={node} />
      ))}
    </>
  );
}

/** What applies the newest configuration, for a node that is online without it. */
const ApplyLine = ({ node }: { node: Node }) =>
  node.online && configurationOf(node).isBehind ? (
    <>
      <p>
        On <bdi>{node.name}</bdi>, this applies the newest configuration, or says why not:
      </p>
      <Line text="sudo agent sync-config" />
    </>
  ) : null;

function FactLine({ fact: { state, about, words, at } }: { fact: Fact }) {
  return (
    <li>
      <State
        name={state}
        word={
          <>
            <bdi>{about}</bdi>: {words} {at === null ? null : <When at={at} />}
          </>
        }
      />
    </li>
  );
}

/** A rule that decides, with its number. */
const Deciding = ({ rule }: { rule: Rule }) => (
  <p>
    <ShowRule id={rule.id} />: <Sentence rule={rule} />
  </p>
);
