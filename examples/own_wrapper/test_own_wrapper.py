from own_wrapper import checkpoint_block

from tinygpt.conformance import parametrize_with_checks


@parametrize_with_checks([checkpoint_block])
def test_own_wrapper(check):
    check()
