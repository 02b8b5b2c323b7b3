// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

/// The log of one group of svcbroker: batches of transactions in one order, which all can check.
///
/// The data of batches is in the chain's logs alone; in storage are their number and a hash over
/// all of them. There is no upgrade, no delegate call, no value and no loop.
contract EventLog {
    uint256 public constant MAX_ACCOUNTS = 64;

    struct Attestations {
        mapping(address => bytes32) given;
        mapping(bytes32 => uint256) votes;
        bytes32 agreed;
    }

    /// Batch `number`, the next after `number` - 1.
    event Batch(uint64 indexed number, address indexed sender, bytes data);
    /// An account may submit and attest from now on, or may not any more.
    event Allowed(address indexed account, bool isAllowed);
    event Transferred(address indexed from, address indexed to);
    /// The hash of block `height` of the group's chain, as an account has it.
    event Attested(uint64 indexed height, address indexed account, bytes32 hash);
    /// An account has attested two hashes for one height. The second does not count.
    event Contradicted(uint64 indexed height, address indexed account, bytes32 first, bytes32 second);

    address public owner;
    uint64 private count;
    uint16 public accounts;
    bytes32 private head;
    uint64 private bornNumber;
    uint64 private bornTime;
    mapping(address => bool) public allowed;
    mapping(uint64 => Attestations) private attestations;

    modifier onlyOwner() {
        require(msg.sender == owner, "not the owner");
        _;
    }

    modifier onlyAllowed() {
        require(allowed[msg.sender], "account not allowed");
        _;
    }

    constructor(address[] memory first) {
        require(first.length <= MAX_ACCOUNTS, "too many accounts");
        owner = msg.sender;
        bornNumber = uint64(block.number);
        bornTime = uint64(block.timestamp);
        emit Transferred(address(0), msg.sender);
        // Bounded, and run once, by who deploys.
        for (uint256 index = 0; index < first.length; index++) {
            setAllowed(first[index], true);
        }
    }

    /// Put a batch behind all others.
    function submit(bytes calldata data) external onlyAllowed {
        uint64 number = count + 1;
        count = number;
        head = keccak256(abi.encode(head, number, msg.sender, keccak256(data)));
        emit Batch(number, msg.sender, data);
    }

    /// How many batches there are, and the hash over all of them.
    function state() external view returns (uint64, bytes32) {
        return (count, head);
    }

    /// The number and the time of the block in which this contract was made.
    function born() external view returns (uint64, uint64) {
        return (bornNumber, bornTime);
    }

    /// Say which hash block `height` of the group's chain has.
    function attest(uint64 height, bytes32 hash) external onlyAllowed {
        require(hash != 0, "no hash");
        Attestations storage found = attestations[height];
        bytes32 before = found.given[msg.sender];
        if (before == hash) {
            return;
        }
        if (before != 0) {
            emit Contradicted(height, msg.sender, before, hash);
            return;
        }
        found.given[msg.sender] = hash;
        uint256 votes = found.votes[hash] + 1;
        found.votes[hash] = votes;
        if (votes * 3 > uint256(accounts) * 2) {
            found.agreed = hash;
        }
        emit Attested(height, msg.sender, hash);
    }

    /// The hash that more than two thirds of the allowed accounts have given; zero before.
    function attested(uint64 height) external view returns (bytes32) {
        return attestations[height].agreed;
    }

    /// The hash that one account has given; zero where it has given none.
    function attestedBy(uint64 height, address account) external view returns (bytes32) {
        return attestations[height].given[account];
    }

    function allow(address account, bool isAllowed) external onlyOwner {
        setAllowed(account, isAllowed);
    }

    function transfer(address to) external onlyOwner {
        require(to != address(0), "no owner");
        emit Transferred(owner, to);
        owner = to;
    }

    function setAllowed(address account, bool isAllowed) private {
        if (allowed[account] == isAllowed) {
            return;
        }
        require(!isAllowed || accounts < MAX_ACCOUNTS, "too many accounts");
        allowed[account] = isAllowed;
        accounts = isAllowed ? accounts + 1 : accounts - 1;
        emit Allowed(account, isAllowed);
    }
}
