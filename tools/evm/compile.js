// Compiles the contract of the EVM ledger: node compile.js SOURCE, with solc in NODE_PATH. Prints JSON.
"use strict";
const fs = require("fs");
const path = require("path");
const solc = require("solc");

const name = path.basename(process.argv[2]);
const input = {
  language: "Solidity",
  sources: { [name]: { content: fs.readFileSync(process.argv[2], "utf8") } },
  settings: {
    // No newer instruction: the same code runs on the oldest chains that are supported.
    evmVersion: "istanbul",
    optimizer: { enabled: true, runs: 200 },
    // The code depends on the source alone, not on the names of files.
    metadata: { bytecodeHash: "none", appendCBOR: false },
    outputSelection: { "*": { "*": ["abi", "evm.bytecode.object", "evm.deployedBytecode.object"] } },
  },
};
const output = JSON.parse(solc.compile(JSON.stringify(input)));
const errors = (output.errors || []).filter((each) => each.severity === "error");
if (errors.length) {
  process.stderr.write(errors.map((each) => each.formattedMessage).join("\n"));
  process.exit(1);
}
const [contract] = Object.values(output.contracts[name]);
const made = {
  compiler: solc.version(),
  evmVersion: input.settings.evmVersion,
  abi: contract.abi,
  code: contract.evm.bytecode.object,
  deployed: contract.evm.deployedBytecode.object,
};
process.stdout.write(JSON.stringify(made, null, 1) + "\n");
